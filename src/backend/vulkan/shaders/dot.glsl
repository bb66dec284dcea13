/* The dot product of four signed bytes. */
#ifdef INT_DOT
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int packed_dot(uint a, uint b, spirv_literal int format);
int dot4(uint a, uint b) { return packed_dot(a, b, 0); }
#else
int dot4(uint a, uint b)
{
    int x = int(a), y = int(b);
    return (x << 24 >> 24) * (y << 24 >> 24) + (x << 16 >> 24) * (y << 16 >> 24) + (x << 8 >> 24) * (y << 8 >> 24) +
           (x >> 24) * (y >> 24);
}
#endif
