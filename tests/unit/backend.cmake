salvo_test(test_team SOURCES test_team.c LABELS quick)
if(TARGET cuda-kernels)
  salvo_test(test_cuda_targets SOURCES test_cuda_targets.c LABELS quick)
endif()
