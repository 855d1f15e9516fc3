/* A program with a userfaultfd of its own, from the system call or from its device: it serves the missing pages of its memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int uffd;
static char *block;
static char page[4096];

static void *serve(void *none) {
    for (;;) {
        struct pollfd wanted = {uffd, POLLIN, 0};
        poll(&wanted, 1, -1);
        struct uffd_msg message;
        if (read(uffd, &message, sizeof message) != sizeof message) continue;
        memset(page, (int)((message.arg.pagefault.address - (unsigned long)block) >> 26) + 1, sizeof page);
        struct uffdio_copy copy = {message.arg.pagefault.address & ~4095UL, (unsigned long)page, 4096, 0, 0};
        ioctl(uffd, UFFDIO_COPY, &copy);
    }
    return none;
}

int main(int count, char **words) {
    size_t size = (size_t)1 << 30;
    block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (count > 1 && !strcmp(words[1], "device")) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device < 0) return puts("there is no device"), 0;
        uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
    } else {
        uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    }
    struct uffdio_api api = {UFFD_API, 0, 0};
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api)) return puts("no userfaultfd"), 1;
    struct uffdio_register range = {{(unsigned long)block, size}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(uffd, UFFDIO_REGISTER, &range)) return printf("register: %s\n", strerror(errno)), 1;
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    unsigned long sum = 0;
    for (size_t offset = 0; offset < size; offset += 64 << 20) sum = sum * 31 + (unsigned char)block[offset];
    printf("%lu\n", sum);
    struct uffdio_range all = {(unsigned long)block, size};
    int unregistered = ioctl(uffd, UFFDIO_UNREGISTER, &all);
    printf("%d %s, %d\n", unregistered, unregistered ? strerror(errno) : "", munmap(block, size));
    return 0;
}
