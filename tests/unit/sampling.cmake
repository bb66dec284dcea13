salvo_test(test_sampling SOURCES test_sampling.c sampling_cases.c LABELS quick one_thread)
