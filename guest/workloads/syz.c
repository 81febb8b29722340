// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Carries out the operations of a program in syzkaller's text form, which the host has read (crates/vm/src/exercise/syz).
 * A line has one operation; all numbers are hexadecimal:
 *   memory AT SIZE                      the memory that the program's pointers lead to; this comes first
 *   write AT BYTES                      writes bytes
 *   store AT FORM RESULT                writes a result: in so many bytes, or as text (d, x, o)
 *   call NUMBER|dev NAME TIMES rN|- …   makes a call with these arguments, numbers or results
 * A result is rN/DIVISOR+MORE. Each call is printed with what it returned.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define RESULTS 10000
#define ARGUMENTS 6
/* The longest path of a device. */
#define PATH 256

/* What calls returned; -1 where they failed, or have not been made. */
static uint64_t results[RESULTS];
static uint64_t memory_at, memory_size;
static unsigned int seconds;

/**
 * interrupt() - Does nothing, but has a call return that waits for longer than it may.
 * @number: The signal.
 */
static void interrupt(int number)
{
	(void)number;
}

/**
 * limit() - Bounds how long a call may wait.
 * @most: Seconds; 0 ends the limit.
 */
static void limit(unsigned int most)
{
	/* Again and again: a signal may arrive before the call waits. */
	struct itimerval timer = { .it_value.tv_sec = most, .it_interval.tv_sec = most ? 1 : 0 };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/**
 * damaged() - Ends the program: the host writes no such line.
 * @line: The line's number.
 */
static void damaged(unsigned int line)
{
	printf("operation %u cannot be read\n", line);
	exit(2);
}

/**
 * number() - Reads a number.
 * @word: The word, or NULL.
 * @line: The line's number.
 *
 * Return: The number.
 */
static uint64_t number(const char *word, unsigned int line)
{
	char *end;
	uint64_t value;

	if (!word)
		damaged(line);
	value = strtoull(word, &end, 16);
	if (end == word || *end)
		damaged(line);
	return value;
}

/**
 * value() - Reads a number or a result.
 * @word: The word, or NULL.
 * @line: The line's number.
 *
 * Return: The value.
 */
static uint64_t value(char *word, unsigned int line)
{
	char *divisor, *more;
	uint64_t index, by;

	if (!word || *word != 'r')
		return number(word, line);
	divisor = strchr(word, '/');
	more = divisor ? strchr(divisor, '+') : NULL;
	if (!more)
		damaged(line);
	*divisor = *more = 0;
	index = number(word + 1, line);
	by = number(divisor + 1, line);
	if (index >= RESULTS || !by)
		damaged(line);
	return results[index] / by + number(more + 1, line);
}

/**
 * place() - Finds bytes of the program's memory.
 * @word: The address.
 * @size: How many bytes.
 * @line: The line's number.
 *
 * Return: The bytes.
 */
static char *place(const char *word, uint64_t size, unsigned int line)
{
	uint64_t at = number(word, line);

	if (at < memory_at || size > memory_size || at - memory_at > memory_size - size)
		damaged(line);
	return (char *)(uintptr_t)at;
}

/**
 * copy() - Copies to or from the program's memory, parts of which the program may have unmapped.
 * @ours: Bytes of this program.
 * @place: Where the program has them.
 * @size: How many.
 * @copies: process_vm_readv() or process_vm_writev(). They refuse what this program would die of.
 */
static void copy(char *ours, char *place, size_t size,
		 ssize_t (*copies)(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
				   unsigned long))
{
	struct iovec here = { ours, size }, there = { place, size };

	copies(getpid(), &here, 1, &there, 1, 0);
}

/**
 * open_device() - Opens a device by a path with the digits of a number, or by its numbers.
 * @words: The call's arguments: path, number and flags; or 0xb (block) or 0xc (character), major and minor number.
 *
 * Return: The descriptor, or -1.
 */
static long open_device(const uint64_t *words)
{
	char path[PATH];
	uint64_t number = words[1];

	if (words[0] == 0xb || words[0] == 0xc) {
		snprintf(path, sizeof(path), "/dev/%s/%u:%u", words[0] == 0xc ? "char" : "block",
			 (unsigned int)(uint8_t)words[1], (unsigned int)(uint8_t)words[2]);
		return open(path, O_RDWR);
	}
	if (words[0] < memory_at || words[0] - memory_at > memory_size - sizeof(path)) {
		errno = EFAULT;
		return -1;
	}
	memset(path, 0, sizeof(path));
	copy(path, (char *)(uintptr_t)words[0], sizeof(path), process_vm_readv);
	path[sizeof(path) - 1] = 0;
	for (char *hash = path; (hash = strchr(hash, '#')); number /= 10)
		*hash = '0' + (char)(number % 10);
	return open(path, (int)words[2]);
}

/**
 * call() - Makes a call, and prints what it returned.
 * @line: The line's number.
 * @count: The call's number.
 */
static void call(unsigned int line, unsigned int count)
{
	const char *which = strtok(NULL, " "), *name = strtok(NULL, " ");
	uint64_t times = number(strtok(NULL, " "), line);
	const char *result = strtok(NULL, " ");
	uint64_t arguments[ARGUMENTS] = { 0 };
	int many = 0;

	if (!which || !name || !result)
		damaged(line);
	for (char *word; (word = strtok(NULL, " ")); many++) {
		if (many == ARGUMENTS)
			damaged(line);
		arguments[many] = value(word, line);
	}
	for (; times; times--) {
		long returned;
		int error;

		limit(seconds);
		errno = 0;
		if (!strcmp(which, "dev"))
			returned = open_device(arguments);
		else
			returned = syscall((long)number(which, line), arguments[0], arguments[1], arguments[2], arguments[3],
					   arguments[4], arguments[5]);
		error = errno;
		limit(0);
		if (*result == 'r') {
			uint64_t index = number(result + 1, line);

			if (index >= RESULTS)
				damaged(line);
			results[index] = (uint64_t)returned;
		}
		if (returned == -1)
			printf("%u: %s = -1, errno %d (%s)\n", count, name, error, strerror(error));
		else
			printf("%u: %s = %#lx\n", count, name, returned);
	}
}

/**
 * store() - Writes a result to the program's memory.
 * @line: The line's number.
 */
static void store(unsigned int line)
{
	const char *at = strtok(NULL, " "), *form = strtok(NULL, " ");
	uint64_t result = value(strtok(NULL, " "), line);
	char text[32] = "";
	size_t size;

	if (!form)
		damaged(line);
	switch (*form) {
	case 'd':
		size = (size_t)snprintf(text, sizeof(text), "%020llu", (unsigned long long)result);
		break;
	case 'x':
		size = (size_t)snprintf(text, sizeof(text), "0x%016llx", (unsigned long long)result);
		break;
	case 'o':
		size = (size_t)snprintf(text, sizeof(text), "%023llo", (unsigned long long)result);
		break;
	default:
		size = (size_t)number(form, line);
		if (size > sizeof(result))
			damaged(line);
		memcpy(text, &result, size);
	}
	copy(text, place(at, size, line), size, process_vm_writev);
}

/**
 * write_bytes() - Writes bytes to the program's memory.
 * @line: The line's number.
 */
static void write_bytes(unsigned int line)
{
	const char *at = strtok(NULL, " ");
	char *digits = strtok(NULL, " ");
	size_t size = digits ? strlen(digits) / 2 : 0;

	/* The bytes take the place of their digits. */
	for (size_t i = 0; i < size; i++) {
		const char pair[3] = { digits[2 * i], digits[2 * i + 1] };

		digits[i] = (char)number(pair, line);
	}
	copy(digits, place(at, size, line), size, process_vm_writev);
}

/**
 * make_memory() - Maps the program's memory.
 * @line: The line's number.
 */
static void make_memory(unsigned int line)
{
	memory_at = number(strtok(NULL, " "), line);
	memory_size = number(strtok(NULL, " "), line);
	if (mmap((void *)(uintptr_t)memory_at, memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED) {
		perror("the memory of the program");
		exit(2);
	}
}

/**
 * whole() - Reads a file. It is closed before the program's calls, which may close any descriptor.
 * @name: The file.
 *
 * Return: Its text, or NULL.
 */
static char *whole(const char *name)
{
	FILE *file = fopen(name, "r");
	char *text = NULL;
	long size;

	if (file && !fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET) &&
	    (text = calloc(1, (size_t)size + 1)) && fread(text, 1, (size_t)size, file) != (size_t)size)
		text = NULL;
	if (file)
		fclose(file);
	return text;
}

/**
 * operate() - Carries out an operation.
 * @line: The line's text.
 * @number: Its number.
 * @calls: How many calls there have been.
 */
static void operate(char *line, unsigned int number, unsigned int *calls)
{
	const char *word = strtok(line, " ");

	if (!word)
		damaged(number);
	else if (!strcmp(word, "memory"))
		make_memory(number);
	else if (!strcmp(word, "write"))
		write_bytes(number);
	else if (!strcmp(word, "store"))
		store(number);
	else if (!strcmp(word, "call"))
		call(number, ++*calls);
	else
		damaged(number);
}

/**
 * main() - Carries out the operations of a file.
 * @count: The number of words.
 * @words: The program, the file, and the seconds that a call may take.
 *
 * Return: 0, or 2 where the file cannot be read.
 */
int main(int count, char **words)
{
	struct sigaction action = { .sa_handler = interrupt };
	unsigned int line = 0, calls = 0;
	char *text = count == 3 ? whole(words[1]) : NULL;

	if (!text) {
		printf("usage: syz FILE SECONDS\n");
		return 2;
	}
	seconds = (unsigned int)atoi(words[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGALRM, &action, NULL);
	/* A pipe without a reader is an error of the call. */
	signal(SIGPIPE, SIG_IGN);
	/* What this program inherits leads to the host. */
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	memset(results, 0xff, sizeof(results));
	while (*text) {
		char *end = strchr(text, '\n');

		if (!end)
			damaged(line + 1);
		*end = 0;
		operate(text, ++line, &calls);
		text = end + 1;
	}
	return 0;
}
