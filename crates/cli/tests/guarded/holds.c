// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * holds FOLDER STARTED GO DONE: has files of the folder open in ways that cannot be handed over to another file system: one is mapped, one was
 * removed, one is on its way through a socket, so that nobody's table of descriptors has it, and one was opened for neither reading nor writing.
 * Makes the file STARTED, waits until GO is there, uses all of them, and makes DONE where each of them has given errors.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 64

static const char *folder;
static int failures;

static void must(int true, const char *what)
{
	if (true)
		return;
	printf("holds: %s (%s)\n", what, strerror(errno));
	failures++;
}

/* A call gives an error of the file system's. */
#define REFUSED(call)                                           \
	do {                                                    \
		errno = 0;                                      \
		must((call) < 0 && errno == EIO, #call);        \
	} while (0)

static int make(const char *name)
{
	char path[256], page[PAGE];
	int fd, i;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	memset(page, 'a', sizeof(page));
	for (i = 0; i < PAGES; i++)
		must(write(fd, page, sizeof(page)) == sizeof(page), name);
	must(!fsync(fd), name);
	/* What is not mapped has to be read from the file again. */
	must(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), name);
	return fd;
}

static void send_away(int socket, int fd)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);

	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(control), &fd, sizeof(fd));
	must(sendmsg(socket, &message, 0) == 1, "sendmsg");
	close(fd);
}

static int receive(int socket)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	int fd = -1;

	must(recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message), "recvmsg");
	if (CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static volatile char sink;

/* A page that has to be read: whoever touches it gets SIGBUS. */
static void touch(const char *page)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		sink = *page;
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "no SIGBUS");
}

/* Nothing of this reaches the file system, but what is cached can be read. */
static void use(int fd)
{
	char page[PAGE];
	ssize_t n;

	errno = 0;
	n = pread(fd, page, sizeof(page), (PAGES - 1) * PAGE);
	must((n < 0 && errno == EIO) || (n == sizeof(page) && page[0] == 'a'), "pread");
	REFUSED(pwrite(fd, "b", 1, 0));
	REFUSED(fsync(fd));
	REFUSED(ftruncate(fd, 1));
	REFUSED(fchmod(fd, 0400));
	REFUSED(fallocate(fd, 0, 0, PAGES * PAGE * 2));
	must(ioctl(fd, _IO('f', 0)) < 0, "ioctl");
	must(!close(fd), "close");
}

int main(int argc, char **argv)
{
	int mapped, removed, neither, sockets[2], fd;
	char path[256], *memory;

	if (argc != 5)
		return 2;
	folder = argv[1];
	mapped = make("mapped");
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
	must(memory != MAP_FAILED, "mmap");
	memory[0] = 'b';
	removed = make("removed");
	snprintf(path, sizeof(path), "%s/removed", folder);
	must(!unlink(path), "unlink");
	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
	send_away(sockets[0], make("sent"));
	close(make("neither"));
	snprintf(path, sizeof(path), "%s/neither", folder);
	neither = open(path, O_ACCMODE);
	must(neither >= 0, "open for neither");
	if (failures)
		return 1;
	close(open(argv[2], O_CREAT | O_WRONLY, 0600));
	while (access(argv[3], F_OK))
		usleep(50000);

	/* The page that was there is there, and nobody writes it. */
	must(memory[0] == 'b', "what was mapped is there");
	memory[1] = 'c';
	REFUSED(msync(memory, PAGES * PAGE, MS_SYNC));
	touch(memory + (PAGES - 1) * PAGE);
	must(!madvise(memory, PAGE, MADV_DONTNEED), "madvise");
	must(memory[1] == 'c', "what was mapped is cached");
	must(!munmap(memory, PAGES * PAGE), "munmap");
	fd = receive(sockets[1]);
	use(fd);
	use(removed);
	use(mapped);
	must(ioctl(neither, _IO('f', 0)) < 0, "ioctl");
	must(!close(neither), "close");
	if (failures)
		return 1;
	close(open(argv[4], O_CREAT | O_WRONLY, 0600));
	return 0;
}
