// Ranks of MPI that send, gather and share large memory, which Open MPI watches by changing the code of mmap and munmap.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long sum = 0;
    for (int turn = 0; turn < 12; turn++) {
        size_t bytes = (size_t)(turn + 1) << 20;
        char *out = malloc(bytes), *in = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(out, rank + turn, bytes);
        MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % size, 0, in, bytes, MPI_BYTE, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (size_t at = 0; at < bytes; at += 4096) sum += in[at];
        munmap(in, bytes);
        free(out);
    }
    long all = 0;
    MPI_Reduce(&sum, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win window;
    long *base;
    MPI_Win_allocate_shared(rank ? 0 : 1 << 24, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Aint length;
    int unit;
    MPI_Win_shared_query(window, 0, &length, &unit, &base);
    MPI_Win_fence(0, window);
    base[rank * 1000] = rank + 1;
    MPI_Win_fence(0, window);
    if (!rank) {
        long shared = 0;
        for (int at = 0; at < size; at++) shared += base[at * 1000];
        printf("sum %ld shared %ld\n", all, shared);
    }
    MPI_Win_free(&window);
    MPI_Finalize();
}
