/* Signals each of its threads by /proc/self/task, as a profiler within a program does, and waits for the answer of each that
   could be signalled. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static sem_t answered;
static volatile int ends;

static void answer(int signal) {
    (void)signal;
    sem_post(&answered);
}

static void *work(void *none) {
    while (!ends) usleep(1000);
    return none;
}

int main(void) {
    size_t size = (size_t)1 << 30;
    char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memset(block, 1, 8 << 20);
    pthread_t threads[3];
    for (int thread = 0; thread < 3; thread++) pthread_create(&threads[thread], NULL, work, NULL);
    sem_init(&answered, 0, 0);
    signal(SIGUSR2, answer);
    usleep(200000);
    for (int way = 0; way < 3; way++) {
        int asked = 0, silent = 0;
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *entry; (entry = readdir(tasks));) {
            int thread = atoi(entry->d_name);
            if (thread == 0) continue;
            long sent = way == 0   ? tgkill(getpid(), thread, SIGUSR2)
                        : way == 1 ? syscall(SYS_tgkill, getpid(), thread, SIGUSR2)
                                   : syscall(SYS_tkill, thread, SIGUSR2);
            if (sent) continue; /* it has ended meanwhile */
            asked++;
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += 2;
            int got;
            while ((got = sem_timedwait(&answered, &until)) && errno == EINTR) {}
            silent += got != 0;
        }
        closedir(tasks);
        printf("asked %d, silent %d\n", asked, silent);
    }
    ends = 1;
    for (int thread = 0; thread < 3; thread++) pthread_join(threads[thread], NULL);
    return 0;
}
