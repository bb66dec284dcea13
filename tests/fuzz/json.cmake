salvo_fuzz(fuzz_json SOURCES fuzz_json.c ../unit/json_echo.c DICTIONARY json.dict)
