salvo_test(test_text_vectors SOURCES test_text_vectors.c text_data.c LABELS quick)
