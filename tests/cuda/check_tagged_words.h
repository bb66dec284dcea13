/* Tagged words: the value after rounding, and the properties of tags. */
#ifndef TESTS_CUDA_CHECK_TAGGED_WORDS_H
#define TESTS_CUDA_CHECK_TAGGED_WORDS_H

#include "backend/cuda/kernels/decode/tagged_words.cuh"
#include "cuda/check_device.h"

/* Each value through a tagged word of each of `tokens` tokens, from `first` on: out and words are
 * [tokens][count]. */
__global__ void check_tagged_words_kernel(
    const float *values, uint32_t count, uint32_t first, uint32_t tokens, float *out, uint32_t *words)
{
    for (uint32_t i = threadIdx.x; i < count * tokens; i += blockDim.x) {
        words[i] = tagged_word(values[i % count], tag_of_token(first + i / count));
        out[i] = value_in_word(words[i]);
    }
}

/* Their tags, and whether a word of the first has each of them. */
__global__ void check_tags_kernel(uint32_t first, uint32_t tokens, uint32_t *tags, uint32_t *seen)
{
    const uint32_t word = tagged_word(1.5f, tag_of_token(first));
    for (uint32_t i = threadIdx.x; i < tokens; i += blockDim.x) {
        tags[i] = tag_of_token(first + i);
        seen[i] = has_tag(word, tags[i]);
    }
}

inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Values after tagging, the same in every token. */
inline std::vector<float> through_tagged_words(
    checks &results, const std::vector<float> &values, uint32_t first)
{
    const uint32_t count = (uint32_t)values.size(), tokens = 6;
    device_array<float> in(values), out(values.size() * tokens);
    device_array<uint32_t> words(values.size() * tokens);
    launch_kernel({"check_words_kernel", 1, 1, 64, 0}, check_tagged_words_kernel, (const float *)in.address,
        count, first, tokens, (float *)out.address, (uint32_t *)words.address);
    device_wait();
    std::vector<float> become = out.get();
    const std::vector<uint32_t> seen = words.get();
    bool alike = out.guard_is_whole() && words.guard_is_whole(), written = true;
    for (uint32_t i = 0; i < count * tokens; i++) {
        alike &= bits_of(become[i]) == bits_of(become[i % count]);
        written &= seen[i] % 8 != 0; /* the tag of unwritten memory */
    }
    results.report("tagged words: a value is the same in every token", alike, 0);
    results.report("tagged words: none equals unwritten memory", written, 0);
    become.resize(count);
    return become;
}

inline void check_rounding(checks &results)
{
    numbers random(31);
    std::vector<float> values;
    for (int i = 0; i < 20000; i++) { /* all exponents of normal numbers but the last */
        const uint32_t exponent = 1 + random.below(253);
        values.push_back(float_of((random.next() & 0x807fffff) | exponent << 23));
    }
    const std::vector<float> become = through_tagged_words(results, values, 1000);
    double error = 0, sum = 0;
    for (size_t i = 0; i < values.size(); i++) {
        const double off = ((double)become[i] - values[i]) / std::fabs((double)values[i]);
        error = std::fmax(error, std::fabs(off));
        sum += become[i] < 0 ? -off : off;
    }
    results.report("tagged words: the nearest of 21 bits", error <= 0x1p-21, error);
    const double mean = std::fabs(sum) / (double)values.size();
    results.report("tagged words: not much larger or smaller in the mean", mean < 0x1p-21 / 8, mean);
}

/* Halves, and bytes times halves as far as 21 bits hold, as rows of embeddings have them. */
inline void check_exact(checks &results)
{
    std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, float_of(8), float_of(0x80000008)};
    for (uint32_t half = 0; half < 0x10000; half++) {
        if ((half & 0x7c00) != 0x7c00)
            values.push_back(f16_to_f32((uint16_t)half));
    }
    for (int byte = -128; byte < 128; byte++) {
        for (uint32_t mantissa = 0; mantissa < 1024; mantissa += 31)
            values.push_back((float)byte * f16_to_f32((uint16_t)(0x2000 | mantissa)));
    }
    const std::vector<float> become = through_tagged_words(results, values, 1);
    size_t wrong = 0;
    for (size_t i = 0; i < values.size(); i++)
        wrong += bits_of(become[i]) != bits_of(values[i]);
    results.report("tagged words: values of 21 bits are exact", wrong == 0, (double)wrong);
}

inline void check_edges(checks &results)
{
    const std::vector<float> not_numbers = {float_of(0x7fc00000), float_of(0x7fffffff), float_of(0xffffffff),
        float_of(0x7f800001), float_of(0xff800001), float_of(0x7ffffffc)};
    bool good = true;
    for (float value : through_tagged_words(results, not_numbers, 5))
        good &= std::isnan(value);
    results.report("tagged words: NaN stays NaN", good, 0);

    const float largest = float_of(0x7f7ffff8), tiny = float_of(3), small = float_of(0x00000104);
    const std::vector<float> become =
        through_tagged_words(results, {float_of(0x7f7fffff), -largest, tiny, -tiny, small}, 0x7ffffffd);
    good = become[0] == INFINITY && become[1] == -largest && bits_of(become[2]) == 0 &&
           bits_of(become[3]) == 0x80000000 && bits_of(become[4]) == 0x00000108;
    results.report("tagged words: the largest and the smallest numbers", good, 0);
}

/* From `first` on: six tags repeat, none is 0 as in unwritten memory, even and odd tags alternate. */
inline void check_tags(checks &results, uint32_t first)
{
    const uint32_t count = 40, different = 6;
    device_array<uint32_t> tags(count), seen(count);
    launch_kernel({"check_tags_kernel", 1, 1, 64, 0}, check_tags_kernel, first, count,
        (uint32_t *)tags.address, (uint32_t *)seen.address);
    device_wait();
    const std::vector<uint32_t> tag = tags.get(), is_first = seen.get();
    bool good = tags.guard_is_whole() && seen.guard_is_whole();
    for (uint32_t i = 0; i < count; i++) {
        good &= tag[i] % 8 != 0 && is_first[i] == (i % different == 0);
        for (uint32_t j = 0; j < i; j++)
            good &= tag[i] != tag[j] && (tag[i] % 8 == tag[j] % 8) == ((i - j) % different == 0);
        good &= i == 0 || tag[i] % 2 != tag[i - 1] % 2;
    }
    results.report("tagged words: tags from token " + std::to_string(first) + " on", good, 0);
}

inline void check_tagged_words(checks &results)
{
    check_rounding(results);
    check_exact(results);
    check_edges(results);
    for (uint32_t first : {0u, 1u, 5u, 100000u, 0x55555550u})
        check_tags(results, first);
}

#endif
