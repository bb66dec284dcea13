salvo_test(test_sampling SOURCES test_sampling.c LABELS quick one_thread)
