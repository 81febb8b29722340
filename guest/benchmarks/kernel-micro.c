/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Small benchmarks of a kernel's services, and one of the processor alone.
 *
 * kernel-micro PERCENT [NAME...] runs the benchmarks that are named, or all, each with that part of its usual operations.
 * It prints for each what the clock says around its loop alone.
 * kernel-micro run NAME COMMAND... prints how long a command takes from its start to its end.
 */
#define _GNU_SOURCE
#include "kernel-clock.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
/* Pages that are mapped and touched at a time. */
#define PAGES 512

static const char *self;

static void wait_for(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail("child");
}

static void null_syscall(long count)
{
	begin();
	while (count--)
		syscall(SYS_getppid);
	end();
}

static void open_close(long count)
{
	begin();
	while (count--) {
		int fd = open("/proc/self/comm", O_RDONLY);

		if (fd < 0 || close(fd))
			fail("open");
	}
	end();
}

static void do_stat(long count)
{
	struct stat about;

	begin();
	while (count--)
		if (stat("/proc/sys/kernel", &about))
			fail("stat");
	end();
}

static void do_read(long count)
{
	char block[4096];
	int fd = open("/dev/zero", O_RDONLY);

	if (fd < 0)
		fail("open");
	begin();
	while (count--)
		if (read(fd, block, sizeof(block)) != sizeof(block))
			fail("read");
	end();
	close(fd);
}

static void write_file(long count)
{
	char block[4096];
	int fd = open("/tmp/kernel-micro.write", O_RDWR | O_CREAT | O_TRUNC, 0600);
	long i;

	if (fd < 0)
		fail("open");
	memset(block, 1, sizeof(block));
	begin();
	for (i = 0; i < count; i++)
		if (pwrite(fd, block, sizeof(block), i % PAGES * PAGE) != sizeof(block))
			fail("write");
	end();
	close(fd);
	unlink("/tmp/kernel-micro.write");
}

static void do_select(long count)
{
	int pair[100][2];
	int i;

	for (i = 0; i < 100; i++)
		if (pipe(pair[i]))
			fail("pipe");
	begin();
	while (count--) {
		struct timeval none = { 0, 0 };
		fd_set set;

		FD_ZERO(&set);
		for (i = 0; i < 100; i++)
			FD_SET(pair[i][0], &set);
		if (select(pair[99][1] + 1, &set, NULL, NULL, &none) != 0)
			fail("select");
	}
	end();
	for (i = 0; i < 100; i++) {
		close(pair[i][0]);
		close(pair[i][1]);
	}
}

static volatile sig_atomic_t caught;

static void handler(int number)
{
	(void)number;
	caught++;
}

static void do_signal(long count)
{
	struct sigaction action;
	long i;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	sigaction(SIGUSR1, &action, NULL);
	caught = 0;
	begin();
	for (i = 0; i < count; i++)
		kill(getpid(), SIGUSR1);
	end();
	if (caught != count)
		fail("signals were lost");
}

/* Two processes on one processor pass a byte to and fro. */
static void to_and_fro(int here, int there, int here_back, int there_back, long count)
{
	char byte = 0;
	pid_t child;
	long i;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		fail("sched_setaffinity");
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		for (i = 0; i < count; i++)
			if (read(there, &byte, 1) != 1 || write(there_back, &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	begin();
	for (i = 0; i < count; i++)
		if (write(here, &byte, 1) != 1 || read(here_back, &byte, 1) != 1)
			fail("pass");
	end();
	wait_for(child);
	memset(&one, 0xff, sizeof(one));
	sched_setaffinity(0, sizeof(one), &one);
}

static void context_switch(long count)
{
	int to[2], fro[2];

	if (pipe(to) || pipe(fro))
		fail("pipe");
	to_and_fro(to[1], to[0], fro[0], fro[1], count);
	close(to[0]);
	close(to[1]);
	close(fro[0]);
	close(fro[1]);
}

static void unix_socket(long count)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		fail("socketpair");
	to_and_fro(pair[0], pair[1], pair[0], pair[1], count);
	close(pair[0]);
	close(pair[1]);
}

static void fork_exit(long count)
{
	begin();
	while (count--) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (child == 0)
			_exit(0);
		wait_for(child);
	}
	end();
}

static void fork_exec(long count)
{
	begin();
	while (count--) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (child == 0) {
			execl(self, self, "nothing", (char *)NULL);
			_exit(1);
		}
		wait_for(child);
	}
	end();
}

static char *map(int protection, int flags, int fd)
{
	char *memory = mmap(NULL, PAGES * PAGE, protection, flags, fd, 0);

	if (memory == MAP_FAILED)
		fail("mmap");
	return memory;
}

static void do_mmap(long count)
{
	begin();
	while (count--)
		munmap(map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), PAGES * PAGE);
	end();
}

/* Each operation is one page. */
static void anonymous_fault(long count)
{
	begin();
	for (; count > 0; count -= PAGES) {
		char *memory = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		long i;

		/* A large page would take all at once. */
		madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
		for (i = 0; i < PAGES; i++)
			memory[i * PAGE] = 1;
		munmap(memory, PAGES * PAGE);
	}
	end();
}

static void file_fault(long count)
{
	static char page[PAGE];
	volatile char sink;
	long i;
	int fd = open("/tmp/kernel-micro.map", O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0)
		fail("open");
	for (i = 0; i < PAGES; i++)
		if (write(fd, page, PAGE) != PAGE)
			fail("write");
	begin();
	for (; count > 0; count -= PAGES) {
		char *memory = map(PROT_READ, MAP_SHARED, fd);

		/* Without this the kernel would map the pages around as well. */
		madvise(memory, PAGES * PAGE, MADV_RANDOM);
		for (i = 0; i < PAGES; i++)
			sink = memory[i * PAGE];
		munmap(memory, PAGES * PAGE);
	}
	end();
	(void)sink;
	close(fd);
	unlink("/tmp/kernel-micro.map");
}

static char *guarded;

static void unprotect(int number)
{
	(void)number;
	caught++;
	mprotect(guarded, PAGE, PROT_READ | PROT_WRITE);
}

static void protection_fault(long count)
{
	struct sigaction action;
	long i;

	memset(&action, 0, sizeof(action));
	action.sa_handler = unprotect;
	sigaction(SIGSEGV, &action, NULL);
	guarded = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	caught = 0;
	begin();
	for (i = 0; i < count; i++) {
		mprotect(guarded, PAGE, PROT_READ);
		*(volatile char *)guarded = 1;
	}
	end();
	signal(SIGSEGV, SIG_DFL);
	if (caught != count)
		fail("faults were lost");
	munmap(guarded, PAGES * PAGE);
}

/* Numbers, branches and memory of a program that asks the kernel for nothing: primes by sieve, and a hash of them. */
static void user(long count)
{
	static unsigned char composite[1 << 16];
	volatile uint64_t result;
	uint64_t hash = 0;

	memset(composite, 0, sizeof(composite));
	begin();
	while (count--) {
		uint32_t i, j;

		memset(composite, 0, sizeof(composite));
		for (i = 2; i < sizeof(composite); i++) {
			if (composite[i])
				continue;
			hash = (hash ^ i) * 0x100000001b3u;
			for (j = 2 * i; j < sizeof(composite); j += i)
				composite[j] = 1;
		}
	}
	end();
	result = hash;
	(void)result;
}

static const struct {
	const char *name;
	void (*run)(long count);
	long count;
} benchmarks[] = {
	{ "null-syscall", null_syscall, 1000000 },
	{ "open-close", open_close, 30000 },
	{ "stat", do_stat, 100000 },
	{ "read", do_read, 300000 },
	{ "write", write_file, 60000 },
	{ "select", do_select, 40000 },
	{ "signal", do_signal, 20000 },
	{ "context-switch", context_switch, 10000 },
	{ "unix-socket", unix_socket, 8000 },
	{ "mmap", do_mmap, 40000 },
	{ "anonymous-fault", anonymous_fault, 60 * PAGES },
	{ "file-fault", file_fault, 500 * PAGES },
	{ "protection-fault", protection_fault, 10000 },
	{ "fork-exit", fork_exit, 800 },
	{ "fork-exec", fork_exec, 150 },
	{ "user", user, 1500 },
};

/* The command's output goes where errors go: what is measured stays alone, and so does what the command says of its failure. */
static int run(char **command)
{
	pid_t child;
	int status;

	begin();
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		dup2(2, 1);
		execvp(command[0], command);
		_exit(127);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	end();
	print_result(1);
	return 0;
}

int main(int argc, char **argv)
{
	size_t i;
	long scale;

	if (argc == 2 && strcmp(argv[1], "nothing") == 0)
		return 0;
	if (argc > 3 && strcmp(argv[1], "run") == 0) {
		benchmark = argv[2];
		return run(argv + 3);
	}
	if (argc < 2) {
		fprintf(stderr, "usage: kernel-micro PERCENT [NAME...] | run NAME COMMAND...\n");
		return 2;
	}
	scale = number(argv[1], 1, 10000);
	self = argv[0];
	for (i = 0; i < sizeof(benchmarks) / sizeof(benchmarks[0]); i++) {
		long count = benchmarks[i].count * scale / 100;
		int wanted = argc == 2;
		int word;

		for (word = 2; word < argc; word++)
			wanted |= strcmp(argv[word], benchmarks[i].name) == 0;
		if (!wanted)
			continue;
		if (count < 1)
			count = 1;
		benchmark = benchmarks[i].name;
		benchmarks[i].run(count);
		print_result(count);
	}
	return 0;
}
