/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The steps of Filebench's personalities, scaled down: threads that work on one set of files.
 *
 * kernel-files PERSONALITY FOLDER PERCENT: makes the files, then prints how long the threads take for their rounds.
 */
#define _GNU_SOURCE
#include "kernel-clock.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB 1024
/* What is read or written at a time, at most. */
#define PIECE (64 * KIB)
/* Added to a file at a time, at most; half of it on average. */
#define APPEND (32 * KIB)

struct worker {
	pthread_t thread;
	uint32_t random;
	char *piece;
	long operations;
};

static const struct personality {
	const char *name;
	void (*round)(struct worker *worker);
	int threads;
	int files;
	long size;
	long rounds;
} *chosen;

static const char *folder;
static long rounds;
static int log_file;
static pthread_barrier_t start;

static void path_of(char *path, size_t room, const char *kind, int index)
{
	snprintf(path, room, "%s/%d/%s%d", folder, index % 20, kind, index);
}

/* A small generator is enough: what matters is that each thread takes another way through the files in each run alike. */
static uint32_t next(struct worker *worker)
{
	worker->random = worker->random * 1664525u + 1013904223u;
	return worker->random >> 8;
}

static int pick(struct worker *worker)
{
	return next(worker) % chosen->files;
}

static void put(struct worker *worker, int file, long length)
{
	while (length > 0) {
		long part = length < PIECE ? length : PIECE;

		if (write(file, worker->piece, part) != part)
			fail("write");
		length -= part;
		worker->operations++;
	}
}

static void append(struct worker *worker, int file)
{
	put(worker, file, 1 + next(worker) % APPEND);
}

static void read_all(struct worker *worker, int file)
{
	long length;

	do {
		length = read(file, worker->piece, PIECE);
		if (length < 0)
			fail("read");
		worker->operations++;
	} while (length > 0);
}

/* Another thread may have removed it a moment ago. */
static int open_file(struct worker *worker, const char *kind, int index, int flags)
{
	char path[256];
	int file;

	path_of(path, sizeof(path), kind, index);
	file = open(path, flags, 0600);
	if (file < 0 && errno != ENOENT)
		fail("open");
	worker->operations++;
	return file;
}

static void close_file(struct worker *worker, int file)
{
	if (close(file))
		fail("close");
	worker->operations++;
}

static void read_file(struct worker *worker, const char *kind, int index)
{
	int file = open_file(worker, kind, index, O_RDONLY);

	if (file < 0)
		return;
	read_all(worker, file);
	close_file(worker, file);
}

static void remove_file(struct worker *worker, const char *kind, int index)
{
	char path[256];

	path_of(path, sizeof(path), kind, index);
	if (unlink(path) && errno != ENOENT)
		fail("unlink");
	worker->operations++;
}

static void log_round(struct worker *worker)
{
	put(worker, log_file, 8 * KIB);
}

static void fileserver(struct worker *worker)
{
	char path[256];
	struct stat about;
	int index = pick(worker);
	int file = open_file(worker, "f", index, O_WRONLY | O_CREAT | O_TRUNC);

	put(worker, file, chosen->size);
	close_file(worker, file);
	file = open_file(worker, "f", pick(worker), O_WRONLY | O_APPEND);
	if (file >= 0) {
		append(worker, file);
		close_file(worker, file);
	}
	read_file(worker, "f", pick(worker));
	remove_file(worker, "f", pick(worker));
	path_of(path, sizeof(path), "f", pick(worker));
	if (stat(path, &about) && errno != ENOENT)
		fail("stat");
	worker->operations++;
}

static void webserver(struct worker *worker)
{
	int i;

	for (i = 0; i < 10; i++)
		read_file(worker, "f", pick(worker));
	log_round(worker);
}

static void webproxy(struct worker *worker)
{
	int index = pick(worker);
	int i, file;

	remove_file(worker, "f", index);
	file = open_file(worker, "f", index, O_WRONLY | O_CREAT | O_TRUNC);
	append(worker, file);
	close_file(worker, file);
	for (i = 0; i < 5; i++)
		read_file(worker, "f", pick(worker));
	log_round(worker);
}

static void flush(struct worker *worker, int file)
{
	append(worker, file);
	if (fsync(file))
		fail("fsync");
	worker->operations++;
	close_file(worker, file);
}

static void varmail(struct worker *worker)
{
	int index = pick(worker);
	int file;

	remove_file(worker, "f", index);
	flush(worker, open_file(worker, "f", index, O_WRONLY | O_CREAT | O_TRUNC));
	file = open_file(worker, "f", pick(worker), O_RDWR | O_APPEND);
	if (file >= 0) {
		read_all(worker, file);
		flush(worker, file);
	}
	read_file(worker, "f", pick(worker));
}

static const struct personality personalities[] = {
	{ "fileserver", fileserver, 10, 200, 128 * KIB, 40 },
	{ "webserver", webserver, 20, 200, 16 * KIB, 90 },
	{ "webproxy", webproxy, 20, 500, 16 * KIB, 60 },
	{ "varmail", varmail, 4, 200, 16 * KIB, 120 },
};

static void *work(void *argument)
{
	struct worker *worker = argument;
	long round;

	pthread_barrier_wait(&start);
	for (round = 0; round < rounds; round++)
		chosen->round(worker);
	return NULL;
}

static void make_files(struct worker *worker)
{
	char path[256];
	int i;

	for (i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "%s/%d", folder, i);
		if (mkdir(path, 0700) && errno != EEXIST)
			fail("mkdir");
	}
	for (i = 0; i < chosen->files; i++) {
		int file = open_file(worker, "f", i, O_WRONLY | O_CREAT | O_TRUNC);

		put(worker, file, chosen->size);
		close_file(worker, file);
	}
	snprintf(path, sizeof(path), "%s/log", folder);
	log_file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log_file < 0)
		fail("open the log");
	sync();
}

int main(int argc, char **argv)
{
	static struct worker workers[100];
	long operations = 0;
	size_t i;

	for (i = 0; argc == 4 && i < sizeof(personalities) / sizeof(personalities[0]); i++)
		if (strcmp(argv[1], personalities[i].name) == 0)
			chosen = &personalities[i];
	if (!chosen) {
		fprintf(stderr, "usage: kernel-files fileserver|webserver|webproxy|varmail FOLDER PERCENT\n");
		return 2;
	}
	benchmark = chosen->name;
	folder = argv[2];
	rounds = chosen->rounds * number(argv[3], 1, 10000) / 100;
	rounds = rounds ? rounds : 1;
	for (i = 0; i < (size_t)chosen->threads; i++) {
		workers[i].random = i * 7919 + 1;
		workers[i].piece = calloc(1, PIECE);
		if (!workers[i].piece)
			fail("memory");
	}
	make_files(&workers[0]);
	workers[0].operations = 0;
	pthread_barrier_init(&start, NULL, chosen->threads + 1);
	for (i = 0; i < (size_t)chosen->threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			fail("thread");
	begin();
	pthread_barrier_wait(&start);
	for (i = 0; i < (size_t)chosen->threads; i++)
		pthread_join(workers[i].thread, NULL);
	end();
	for (i = 0; i < (size_t)chosen->threads; i++)
		operations += workers[i].operations;
	print_result(operations);
	return 0;
}
