/* A step of many tokens from its place in the ring to its results, with rows in between. */
#ifndef TESTS_CUDA_CHECK_ROWS_H
#define TESTS_CUDA_CHECK_ROWS_H

#include "backend/cuda/sample_plan.h"
#include "cuda/check_device.h"

extern "C" __global__ void salvo_begin(const cuda_machine *machine);
extern "C" __global__ void salvo_angles(const cuda_machine *machine);
extern "C" __global__ void salvo_rows(
    const cuda_machine *machine, const cuda_row_table *table, const cuda_packed_input *packed_inputs);
extern "C" __global__ void salvo_few_rows(
    const cuda_machine *machine, const cuda_row_table *table, const cuda_packed_input *packed_inputs);

typedef void rows_kernel(
    const cuda_machine *machine, const cuda_row_table *table, const cuda_packed_input *packed_inputs);

inline rows_kernel *find_rows_kernel(const cuda_launch &launch)
{
    return strcmp(launch.kernel, "salvo_rows") ? salvo_few_rows : salvo_rows;
}
extern "C" __global__ void salvo_norm(
    const cuda_machine *machine, const __grid_constant__ cuda_norm_rows norm);
extern "C" __global__ void salvo_end(const cuda_machine *machine);

/* A row table with one vector: loaded, normalised, stored, rounded. */
struct test_table {
    std::vector<uint8_t> bytes;
    uint32_t places;

    test_table(
        uint32_t rows, cuda_load load, cuda_row_op op, cuda_store store, cuda_round round, uint32_t places_)
        : places(places_)
    {
        cuda_row_table header = {};
        header.rows = rows;
        bytes.resize(sizeof header);
        header.load_count = header.op_count = header.store_count = header.round_count = 1;
        header.loads_at = add(&load, sizeof load);
        header.ops_at = add(&op, sizeof op);
        header.stores_at = add(&store, sizeof store);
        header.rounds_at = add(&round, sizeof round);
        bytes.resize((bytes.size() + 15) / 16 * 16);
        header.size = (uint32_t)bytes.size();
        memcpy(bytes.data(), &header, sizeof header);
    }

    uint32_t add(const void *table, size_t size)
    {
        const size_t at = (bytes.size() + 15) / 16 * 16;
        bytes.resize(at + size);
        memcpy(bytes.data() + at, table, size);
        return (uint32_t)at;
    }
};

struct rows_check {
    enum {
        SLOTS = 4,
        CONTEXT = 300,
        RING = 4,
        SEQUENCE = 5,
        PLAN = 16,
        VOCABULARY = 100,
        PAIRS = 8,
        STOP = 42
    };
    checks &results;
    numbers random{77};
    test_machine machine;
    device_array<uint8_t> ring, sampling;
    device_array<uint32_t> words, barrier; /* sequence, done[RING], cancel, error; BARRIER_... */
    device_array<cuda_result> announced;
    device_array<float> cosines, sines;
    uint64_t ropes, frequencies;

    rows_check(checks &results_, const std::vector<test_run> &runs)
        : results(results_), machine(runs, SLOTS, CONTEXT, 2),
          ring((size_t)RING * machine.machine.step_bytes),
          sampling((size_t)8 * cuda_sample_row_bytes(VOCABULARY)), words(RING + 3),
          barrier(std::vector<uint32_t>(64)), announced((size_t)RING * SLOTS), cosines(16 * PAIRS),
          sines(16 * PAIRS)
    {
        const double steps[PAIRS] = {1, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.0001};
        frequencies = device_new(sizeof steps);
        device_put(frequencies, steps, sizeof steps);
        const cuda_rope rope = {frequencies, 2 * PAIRS, 1};
        ropes = device_new(sizeof rope);
        device_put(ropes, &rope, sizeof rope);
        int32_t *ids = (int32_t *)(machine.step.data() + machine.machine.ids_at);
        for (uint32_t i = 0; i < machine.tokens; i++)
            ids[i] = (int32_t)(10 + i);
        cuda_step *step = (cuda_step *)machine.step.data();
        step->stop_count = 2;
        step->stop_ids[0] = 3;
        step->stop_ids[1] = STOP;
        step->plan = PLAN;
        step->sequence = SEQUENCE;
        cuda_machine &m = machine.machine;
        m.step_ring = ring.address;
        m.sequence = words.address;
        m.done = words.address + 4;
        m.cancel = words.address + 4 * (RING + 1);
        m.error = words.address + 4 * (RING + 2);
        m.barrier = barrier.address;
        m.plan = PLAN;
        m.results = announced.address;
        m.sampling = sampling.address;
        m.vocabulary = VOCABULARY;
        m.ropes = ropes;
        m.rope_count = 1;
        m.rope_pairs = PAIRS;
        m.cosines = cosines.address;
        m.sines = sines.address;
        set_word(0, SEQUENCE);
        set_word(RING + 1, 0);
        set_word(RING + 2, 0);
    }

    ~rows_check()
    {
        device_free(ropes);
        device_free(frequencies);
    }

    void set_word(uint32_t index, uint32_t value) { device_put(words.address + 4 * index, &value, 4); }

    /* The step is in the ring alone. */
    const cuda_machine *upload()
    {
        const cuda_machine *device = machine.upload();
        const std::vector<uint8_t> poison(machine.step.size(), 0xee);
        device_put(machine.machine.step, poison.data(), poison.size());
        device_put(ring.address + (SEQUENCE % RING) * (uint64_t)machine.machine.step_bytes,
            machine.step.data(), machine.step.size());
        return device;
    }

    std::vector<cuda_slot> slots()
    {
        std::vector<cuda_slot> all(SLOTS);
        device_get(all.data(), machine.machine.slot_states, SLOTS * sizeof(cuda_slot));
        return all;
    }

    void set_slots(const std::vector<cuda_slot> &all)
    {
        device_put(machine.machine.slot_states, all.data(), SLOTS * sizeof(cuda_slot));
    }

    int32_t token(uint32_t slot, uint32_t position)
    {
        int32_t id;
        device_get(&id, machine.machine.tokens + ((uint64_t)slot * (CONTEXT + 1) + position) * 4, 4);
        return id;
    }

    void set_sampled(uint32_t output, int32_t id)
    {
        device_put(sampling.address + output * cuda_sample_row_bytes(VOCABULARY), &id, 4);
    }

    void expect(const char *what, bool good) { results.report(std::string("step: ") + what, good, 0); }

    void check_angles()
    {
        const std::vector<float> c = cosines.get(), s = sines.get();
        const cuda_row *rows = (const cuda_row *)(machine.step.data() + machine.machine.rows_at);
        const double steps[PAIRS] = {1, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.0001};
        double worst = 0;
        for (uint32_t t = 0; t < machine.tokens; t++) {
            for (uint32_t i = 0; i < PAIRS; i++) {
                worst = std::fmax(worst, std::fabs(c[t * PAIRS + i] - std::cos(rows[t].position * steps[i])));
                worst = std::fmax(worst, std::fabs(s[t * PAIRS + i] - std::sin(rows[t].position * steps[i])));
            }
        }
        results.report("step: angles", worst < 1e-7, worst);
    }

    /* rms_norm of rows (or of the rows with logits), and its rounding; `dead` is a row that no kernel may
     * touch.
     */
    void check_table(
        const cuda_machine *device, uint32_t kind, uint32_t rounding, uint32_t columns, uint32_t dead)
    {
        const uint32_t rows = kind == ROWS_OUTPUTS ? (uint32_t)machine.outputs.size() : machine.tokens,
                       capacity = rows + 2;
        const uint32_t padded = (columns + 127) / 128 * 128;
        const std::vector<float> x = random.vector((size_t)machine.tokens * columns),
                                 weight = random.vector(columns);
        const device_array<float> x_array(x), weight_array(weight), out_array((size_t)capacity * columns);
        const device_array<uint8_t> packed_input_array(cuda_packed_input_bytes(rounding, columns, capacity));
        const std::vector<cuda_packed_input> packed_inputs = {
            {}, cuda_packed_input_at(rounding, columns, capacity, packed_input_array.address)};
        const device_array<cuda_packed_input> packed_inputs_array(packed_inputs);
        cuda_load load = {};
        load.from = x_array.address;
        load.kind = kind == ROWS_OUTPUTS ? CUDA_LOAD_SELECTED : CUDA_LOAD_ROW;
        load.columns = columns;
        load.place = 4;
        cuda_row_op op = {};
        op.kind = OP_RMS_NORM;
        op.columns = op.group = columns;
        op.in[0] = 4;
        op.out = padded + 8;
        op.weight = weight_array.address;
        op.value = 1e-5f;
        const test_table table(kind, load, op, {out_array.address, padded + 8, columns},
            {padded + 8, columns, (uint16_t)rounding, 0, 1}, 2 * padded + 8);
        const device_array<uint8_t> table_array(table.bytes);
        const cuda_launch launch = cuda_rows_launch(capacity, (uint32_t)table.bytes.size(), table.places);
        launch_kernel(launch, find_rows_kernel(launch), device, (const cuda_row_table *)table_array.address,
            (const cuda_packed_input *)packed_inputs_array.address);
        device_wait();
        const std::vector<float> out = out_array.get();
        const std::vector<uint8_t> packed_input = packed_input_array.get();
        double worst = 0;
        bool good = out_array.guard_is_whole() && packed_input_array.guard_is_whole();
        for (uint32_t row = 0; row < capacity; row++) {
            const float *values = &out[(size_t)row * columns];
            if (row >= rows || row == dead) {
                for (uint32_t i = 0; i < columns; i++)
                    good &= is_poison(values[i]);
                continue;
            }
            const float *from = &x[(size_t)(kind == ROWS_OUTPUTS ? machine.outputs[row] : row) * columns];
            double squares = 0;
            for (uint32_t i = 0; i < columns; i++)
                squares += (double)from[i] * from[i];
            std::vector<double> reference(columns);
            for (uint32_t i = 0; i < columns; i++)
                reference[i] = from[i] / std::sqrt(squares / columns + 1e-5) * weight[i];
            worst = std::fmax(worst, row_error(values, reference.data(), columns));
            good &= packed_input_is_right(packed_inputs[1], packed_input, packed_input_array.address, row,
                columns, values, kind == ROWS_TOKENS && machine.is_early(row));
        }
        results.report("rows: " + std::string(kind == ROWS_OUTPUTS ? "outputs" : "tokens") + ", rounding " +
                           std::to_string(rounding) + ", " + std::to_string(columns) + " columns",
            worst < 1e-6 && good, worst, good ? "" : "rounding, or wrote where it must not");
    }

    /* The same by salvo_norm, with or without a norm; rows that are not live are computed, too. */
    void check_norm(
        const cuda_machine *device, uint32_t rounding, uint32_t columns, bool normalises, bool stores)
    {
        const uint32_t capacity = machine.tokens + 2;
        const std::vector<float> x = random.vector((size_t)capacity * columns),
                                 weight = random.vector(columns);
        const device_array<float> x_array(x), weight_array(weight), out_array((size_t)capacity * columns);
        const device_array<uint8_t> packed_input_array(cuda_packed_input_bytes(rounding, columns, capacity));
        cuda_norm_rows norm = {};
        norm.token_rows = machine.token_rows();
        norm.x = x_array.address;
        norm.weight = normalises ? weight_array.address : 0;
        norm.out = stores ? out_array.address : 0;
        norm.packed_input = cuda_packed_input_at(rounding, columns, capacity, packed_input_array.address);
        norm.rows = ROWS_TOKENS;
        norm.columns = columns;
        norm.epsilon = 1e-5f;
        launch_kernel(cuda_norm_launch(capacity, columns), salvo_norm, device, norm);
        device_wait();
        const std::vector<float> out = out_array.get();
        const std::vector<uint8_t> packed_input = packed_input_array.get();
        double worst = 0;
        bool good = out_array.guard_is_whole() && packed_input_array.guard_is_whole();
        for (uint32_t row = 0; row < capacity; row++) {
            const float *values = &out[(size_t)row * columns], *from = &x[(size_t)row * columns];
            if (row >= machine.tokens || !stores) {
                for (uint32_t i = 0; i < columns; i++)
                    good &= is_poison(values[i]);
            }
            if (row >= machine.tokens)
                continue;
            double squares = 0;
            for (uint32_t i = 0; i < columns; i++)
                squares += (double)from[i] * from[i];
            std::vector<double> reference(from, from + columns);
            for (uint32_t i = 0; i < columns && normalises; i++)
                reference[i] *= weight[i] / std::sqrt(squares / columns + 1e-5);
            if (stores)
                worst = std::fmax(worst, row_error(values, reference.data(), columns));
            if (stores || !normalises)
                good &= packed_input_is_right(norm.packed_input, packed_input, packed_input_array.address,
                    row, columns, stores ? values : from, machine.is_early(row));
        }
        results.report("norm: rounding " + std::to_string(rounding) + ", " + std::to_string(columns) +
                           " columns" + (normalises ? "" : " as they are") + (stores ? "" : ", not stored"),
            worst < 1e-6 && good, worst, good ? "" : "rounding, or wrote where it must not");
    }

    void run()
    {
        set_slots({{7, 0, 0, 0}, {99, 1, 1, 0}, {50, 1, 1, 0}, {9, 1, 0, 0}});
        const cuda_machine *device = upload();
        launch_kernel(cuda_begin_launch(), salvo_begin, device);
        launch_kernel(cuda_angles_launch(16), salvo_angles, device);
        device_wait();
        expect("ids are where embed reads them",
            token(2, 0) == 10 && token(2, 4) == 14 && token(1, 4) == 17 && token(1, 5) == 18);
        expect("ids of others are not", token(0, 7) == 0 && token(3, 9) == 0);
        std::vector<cuda_run> runs(4);
        device_get(runs.data(), machine.machine.step + machine.machine.runs_at, 4 * sizeof(cuda_run));
        expect("a run whose slot has ended has no rows",
            runs[2].count == 0 && runs[2].logits == LOGITS_NONE && runs[1].count == 1 && runs[0].count == 5);
        check_angles();
        for (uint32_t rounding : {ROUNDING_Q8, ROUNDING_F16, ROUNDING_F32}) {
            check_table(device, ROWS_TOKENS, rounding, 288, 6);
            check_table(device, ROWS_OUTPUTS, rounding, 96, 2);
        }
        check_table(device, ROWS_TOKENS, ROUNDING_F32, 301, 6);
        for (uint32_t rounding : {ROUNDING_Q8, ROUNDING_F16, ROUNDING_F32}) {
            check_norm(device, rounding, NORM_COLUMNS + 228, false, false); /* a row has two blocks */
            check_norm(device, rounding, 292, true, true);
            check_norm(device, rounding, 1028, true, true);
            check_norm(device, rounding, 96, false, false);
            check_norm(device, rounding, 4096, false, true);
        }
        set_sampled(0, STOP);
        set_sampled(1, 5);
        set_sampled(2, CUDA_SAMPLE_NOT_ASKED);
        launch_kernel(cuda_end_launch(), salvo_end, device);
        device_wait();
        const std::vector<cuda_result> result = announced.get();
        const cuda_result *of_step = &result[(SEQUENCE % RING) * SLOTS];
        expect("results", of_step[0].sampled == 1 && of_step[0].ended == 1 && !of_step[0].failed &&
                              of_step[1].sampled == 1 && !of_step[1].ended && !of_step[1].failed &&
                              of_step[2].sampled == 0 && !of_step[2].failed && of_step[3].sampled == 0 &&
                              !of_step[3].failed);
        const std::vector<cuda_slot> after = slots();
        expect("slots", after[2].next == 5 && after[2].ended == 1 && after[2].version == 0 &&
                            after[0].next == 8 && after[0].ended == 0 && after[0].version == 1 &&
                            after[1].next == 6 && after[1].version == 0 && after[3].next == 9 &&
                            after[3].ended == 1 && after[3].version == 0);
        const std::vector<uint32_t> word = words.get();
        expect("done", word[0] == SEQUENCE + 1 && word[1 + SEQUENCE % RING] == SEQUENCE + 1);
    }

    /* Nothing is sampled from rows without a number; and nothing at all after a cancel. */
    void run_failed(bool cancelled)
    {
        set_slots({{7, 0, 0, 0}, {0, 0, 1, 0}, {0, 0, 1, 0}, {9, 1, 0, 0}});
        set_word(RING + 1, cancelled);
        const cuda_machine *device = upload();
        launch_kernel(cuda_begin_launch(), salvo_begin, device);
        set_sampled(0, CUDA_SAMPLE_NO_ID);
        set_sampled(1, 5);
        launch_kernel(cuda_end_launch(), salvo_end, device);
        device_wait();
        const std::vector<cuda_result> result = announced.get();
        const cuda_result *of_step = &result[(SEQUENCE % RING) * SLOTS];
        const std::vector<cuda_slot> after = slots();
        cuda_step step;
        device_get(&step, machine.machine.step, sizeof step);
        if (cancelled)
            expect("cancelled", step.token_count == 0 && of_step[0].failed == 2 && of_step[1].failed == 2 &&
                                    after[0].next == 7 && after[0].version == 0 && after[1].version == 1);
        else
            expect("failed", of_step[0].failed == 1 && of_step[0].number == 4 && of_step[0].sampled == 0 &&
                                 after[2].version == 1 && after[0].version == 1 && of_step[1].sampled == 1);
    }
};

inline void check_steps(checks &results)
{
    const std::vector<test_run> runs = {{2, 0, 5}, {0, 7, 1, LOGITS_LAST, SOURCE_LAST},
        {3, 9, 1, LOGITS_LAST, SOURCE_LAST}, {1, 4, 2, LOGITS_NONE}};
    rows_check(results, runs).run();
    rows_check(results, runs).run_failed(false);
    rows_check(results, runs).run_failed(true);
}

#if ON_DEVICE
/* A norm and its rounding, as before every matmul. */
inline void time_rows()
{
    for (uint32_t tokens : {8, 64, 512}) {
        for (uint32_t columns : {576, 1536, 2048}) {
            numbers random(5);
            test_machine machine({{0, 0, tokens}}, 1, 1024, 4);
            machine.machine.rope_count = 0;
            const device_array<float> x(random.vector((size_t)tokens * columns)),
                weight(random.vector(columns)), out((size_t)tokens * columns);
            const device_array<uint8_t> memory(cuda_packed_input_bytes(ROUNDING_Q8, columns, tokens));
            const device_array<cuda_packed_input> packed_inputs(std::vector<cuda_packed_input>{
                cuda_packed_input_at(ROUNDING_Q8, columns, tokens, memory.address)});
            cuda_load load = {};
            load.from = x.address;
            load.kind = CUDA_LOAD_ROW;
            load.columns = columns;
            cuda_row_op op = {};
            op.kind = OP_RMS_NORM;
            op.columns = op.group = columns;
            op.out = columns;
            op.weight = weight.address;
            op.value = 1e-5f;
            const test_table table(ROWS_TOKENS, load, op, {out.address, columns, columns},
                {columns, columns, ROUNDING_Q8, 0}, 2 * columns);
            const device_array<uint8_t> table_array(table.bytes);
            const cuda_launch launch = cuda_rows_launch(tokens, (uint32_t)table.bytes.size(), table.places);
            const cuda_machine *device = machine.upload();
            const double time = time_of([&] {
                launch_kernel(launch, find_rows_kernel(launch), device,
                    (const cuda_row_table *)table_array.address,
                    (const cuda_packed_input *)packed_inputs.address);
            });
            printf("%-44s T %4u  %8.2f us\n",
                ("norm and rounding, " + std::to_string(columns) + " columns").c_str(), tokens, time);
        }
    }
}
#endif

#endif
