salvo_fuzz(fuzz_state SOURCES fuzz_state.c ../tools/model_mix.c ../tools/model_plan.c ../tools/model_write.c
  ../tools/random_weights.c)
