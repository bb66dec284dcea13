salvo_test(test_base SOURCES test_base.c LABELS quick)
salvo_test(test_team SOURCES test_team.c LABELS quick)
