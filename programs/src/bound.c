/* Binds itself to one CPU, gives itself a class of its own and a memory policy, maps memory, takes all that back, and counts the threads
   that have kept it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++) if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    struct sched_param none = {0};
    sched_setaffinity(0, sizeof one, &one);
    sched_setscheduler(0, SCHED_BATCH, &none);
    for (int part = 0; part < 3; part++) {
        size_t size = (size_t)1 << 30;
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memset(memory, 1, 4 << 20);
    }
    usleep(300000);
    sched_setaffinity(0, sizeof all, &all);
    sched_setscheduler(0, SCHED_OTHER, &none);
    int bound = 0, of_class = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        cpu_set_t has;
        sched_getaffinity(atoi(task->d_name), sizeof has, &has);
        bound += !CPU_EQUAL(&has, &all);
        of_class += sched_getscheduler(atoi(task->d_name)) == SCHED_BATCH;
    }
    printf("%d bound, %d in the class\n", bound, of_class);
    return 0;
}
