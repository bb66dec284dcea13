/* Attention of one token: the tasks of each block, and the choice of the algorithm. Scores are in powers of
 * two: the queries are multiplied by log2(e). */
#ifndef CUDA_ATTEND_ONE_CUH
#define CUDA_ATTEND_ONE_CUH

#include "backend/cuda/kernels/decode/attend_lanes.cuh"
#include "backend/cuda/kernels/decode/attend_tiles.cuh"

enum { ATTEND_POSITIONS = 128 }; /* positions below which another split does not pay */

/* The number of splits: as many as pay. */
struct attend_split {
    uint32_t active, length;
};

KERNEL_INLINE attend_split split_positions(uint32_t positions, uint32_t splits)
{
    uint32_t active = (positions + ATTEND_POSITIONS - 1) / ATTEND_POSITIONS;
    active = min(max(active, 1u), splits);
    if (active == 1)
        return {1, positions};
    const uint32_t length = (positions + active - 1) / active;
    return {(positions + length - 1) / length, length};
}

/* A record's end, by the finishing warp. */
KERNEL_INLINE void finish_attend(uint8_t *shared, const cuda_attend &attend, uint32_t serial)
{
    shared_head &head = *(shared_head *)shared;
    if (!head.machine.attend_own_memory)
        wait_for_workers(head, serial);
    else if (!attend.tiled)
        finish_head<CUDA_WARPS, 0>(head, attend, room_of_lanes(shared, 1, attend.head_dim), serial);
    else if (attend.head_dim == 64)
        finish_head<TILE_PARTS, 64>(head, attend, room_of_tiles(shared, 1, 64), serial);
    else
        finish_head<TILE_PARTS, 128>(head, attend, room_of_tiles(shared, 1, 128), serial);
}

/* The algorithm of a task. */
enum attend_way { ATTEND_BY_16 = 4, ATTEND_BY_32 = 8, ATTEND_TILES_OF_64 = 16, ATTEND_TILES_OF_128 = 32 };

KERNEL_INLINE uint32_t find_way(const cuda_attend &attend, const attend_task &task)
{
    if (attend.tiled)
        return attend.head_dim == 64 ? ATTEND_TILES_OF_64 : ATTEND_TILES_OF_128;
    return (task.heads > 1 ? LANES_TWO : 0) | (attend.kv_type == TYPE_F32 ? LANES_WIDE : 0) |
           (attend.head_dim <= 64       ? 0
               : attend.head_dim <= 128 ? ATTEND_BY_16
                                        : ATTEND_BY_32);
}

KERNEL_INLINE void attend_any(uint32_t way)
{
    if (way == ATTEND_TILES_OF_64)
        attend_by_tiles<64>();
    else if (way == ATTEND_TILES_OF_128)
        attend_by_tiles<128>();
    else if (way < ATTEND_BY_16)
        attend_by_so_many<8>(way);
    else if (way < ATTEND_BY_32)
        attend_by_so_many<16>(way - ATTEND_BY_16);
    else
        attend_by_so_many<32>(way - ATTEND_BY_32);
}

/* Task number `index` of the token, of `at_once` at a time; heads 0: there is none. Several heads a task read
 * the cache once for all; while one split is enough, more blocks are better. */
KERNEL_INLINE attend_task find_task(
    const cuda_attend &attend, uint32_t position, uint32_t index, uint32_t at_once)
{
    const uint32_t each = attend.heads / attend.kv_heads;
    const uint32_t seen = attend.window && position + 1 > attend.window ? position + 1 - attend.window : 0;
    const attend_split ranges = split_positions(position + 1 - seen, attend.splits);
    const uint32_t most = ranges.active == 1 ? 1
                          : attend.tiled     ? CUDA_TILE_HEADS
                                             : CUDA_LANES_HEADS,
                   subsets = (each + most - 1) / most;
    const uint32_t rest = index / ranges.active, within = rest % subsets * most;
    attend_task task;
    task.split = index % ranges.active;
    task.active = ranges.active;
    task.kv_head_index = rest / subsets;
    task.first_head = task.kv_head_index * each + within;
    task.heads = task.kv_head_index < attend.kv_heads ? min(most, each - within) : 0;
    task.begin = seen + task.split * ranges.length;
    const uint32_t end = min(task.begin + ranges.length, position + 1);
    task.has_own = end == position + 1 && attend.appends;
    task.cached_end = task.has_own ? end - 1 : end;
    task.more = index + at_once < attend.kv_heads * subsets * ranges.active;
    return task;
}

/* The next task of one block. The first is the same in all layers of a token whose attention has one shape.
 */
KERNEL_INLINE void take_task(uint8_t *shared, bool is_first)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_record *record = current_record(shared);
    if (is_first && head.task_shape == record->index && head.task_tag == head.tag)
        return;
    sync_threads<CUDA_WORKERS>(); /* no thread needs the previous task */
    if (this_thread() == 0) {
        /* The last blocks have the fewest rows of small matrices, and are free when the queries arrive. */
        head.task_number = is_first ? gridDim.x - 1 - blockIdx.x : head.task_number + gridDim.x;
        head.task = find_task(record->attend, head.row.position, head.task_number, gridDim.x);
        head.task_shape = is_first ? record->index : 0;
        head.task_tag = head.tag;
    }
    sync_threads<CUDA_WORKERS>();
}

/* The tasks of one block. No value is kept from one task to the next. */
KERNEL_INLINE void attend_one_token()
{
    for (bool is_first = true;; is_first = false) {
        DYNAMIC_SHARED_ANEW(shared);
        shared_head &head = *(shared_head *)shared;
        take_task(shared, is_first);
        if (uniform(head.task.heads == 0))
            return;
        attend_any(uniform(find_way(current_record(shared)->attend, head.task)));
        DYNAMIC_SHARED_ANEW(again);
        if (uniform(!((shared_head *)again)->task.more))
            return;
    }
}

#endif
