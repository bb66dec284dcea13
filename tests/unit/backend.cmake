salvo_test(test_team SOURCES test_team.c LABELS quick)
salvo_test(test_lowering SOURCES test_lowering.c lowering_case.c gguf_model.c gguf_sample.c LABELS quick)
salvo_test(test_backend_checks SOURCES test_backend_checks.c LABELS quick)
salvo_test(test_cpu_rows SOURCES test_cpu_rows.c LABELS quick)
