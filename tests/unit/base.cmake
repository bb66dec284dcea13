salvo_test(test_base SOURCES test_base.c LABELS quick)
