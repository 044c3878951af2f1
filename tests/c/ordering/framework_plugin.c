// A framework's kernels, under whatever name it is loaded: one receives a table of which the program
// fills a part, the other receives an address.
#include "communication.h"

static void *table_kernel, *fill_kernel;

// As in `reach.ptx`: the last word of the table is an address.
static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry fill_in_table(\n.param .align 8 .b8 table[4080],\n.param .u64 value,\n"
                           ".param .u64 ns\n)\n{ ret; }\n";

void start(void) {
    void *module;
    find_functions();
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&table_kernel, module, "fill_in_table"));
    OK(cuModuleLoadData(&module, "\x7f" "ELF"));
    OK(cuModuleGetFunction(&fill_kernel, module, "late_fill"));
}

void by_table(void *stream, Pointer at, Word value) {
    Word table[510] = {0}, ns = LATE;
    table[509] = at;
    void *arguments[] = {table, &value, &ns};
    OK(cuLaunchKernel(table_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
}

void by_address(void *stream, Pointer at, Word value) {
    Word bytes = 8, ns = LATE;
    void *arguments[] = {&at, &bytes, &value, &ns};
    OK(cuLaunchKernel(fill_kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0));
}
