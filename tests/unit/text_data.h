/* Where the tests find texts and vocabularies that the project does not carry. */
#ifndef TESTS_TEXT_DATA_H
#define TESTS_TEXT_DATA_H

#include "base/buffer.h"
#include "text/tokenizer.h"

/*
 * The folder of test data, from SALVO_TEST_DATA or beside the project; NULL, and a note, when there is
 * none.
 */
const char *test_data_folder(void);

/* The default model, from SALVO_MODEL or the cache; NULL, and a note, when it is not there. */
const char *default_model_path(void);

/* `folder`/`name`, in a buffer that the next call uses again. */
const char *test_data_path(const char *folder, const char *name);

/* These fail the test when something is wrong. */
struct buffer read_whole_file(const char *path); /* with a NUL after the end */
struct tokenizer *open_vocabulary(const char *path, struct gguf **out_gguf);

#endif
