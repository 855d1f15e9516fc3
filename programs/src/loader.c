/* A loader as AppImages have: it finds where its own file ends, unpacks the file system behind that, and becomes the program in it. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    int file = open("/proc/self/exe", O_RDONLY);
    struct stat found;
    fstat(file, &found);
    char *all = mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    Elf64_Ehdr *head = (Elf64_Ehdr *)all;
    size_t end = head->e_shoff + (size_t)head->e_shentsize * head->e_shnum;
    if (end >= (size_t)found.st_size) {
        char line[64];
        FILE *numbers = fopen("unpacked/numbers", "r");
        long sum = 0;
        while (fgets(line, sizeof line, numbers)) sum += atol(line);
        printf("%ld, APPDIR %s\n", sum, getenv("APPDIR"));
        return 4;
    }
    FILE *image = fopen("image", "w");
    fwrite(all + end, 1, found.st_size - end, image);
    fclose(image);
    if (system("unsquashfs -q -n -d unpacked image > said")) return 2;
    setenv("APPDIR", "unpacked", 1);
    char *arguments[] = {"AppRun", NULL};
    execv("unpacked/AppRun", arguments);
    return 3;
}
