// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loads of a disk and of a network, timed in the guest. It prints a line `measured WHAT NUMBER` for each.
 * Usage: load disk DEVICE PERCENT, or load network HOST PORT SINK PERCENT. PERCENT is how much of each load is done.
 * All but the eight readers run on CPU 0. Numbers are nanoseconds: of the whole load, or of a round trip where it is one of pings.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPAN (32L << 20)
#define READERS 8

static char *data;
static int percent;

static void fail(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static long part(long n)
{
	return n * percent / 100 ?: 1;
}

static void say(const char *what, long long ns)
{
	printf("measured %s %lld\n", what, ns);
}

/* --- The disk, past the cache. */

static void transfer(int fd, int writes, long size, long count, long from)
{
	long i;

	for (i = 0; i < count; i++) {
		off_t at = (from + i * size) % SPAN;

		if ((writes ? pwrite(fd, data, size, at) : pread(fd, data, size, at)) != size)
			fail(writes ? "write" : "read");
	}
}

static void one(int fd, const char *what, int writes, long size, long count)
{
	long long begin = now();

	transfer(fd, writes, size, part(count), 0);
	say(what, now() - begin);
}

static void several(int fd, const char *what, long size, long count)
{
	long long begin = now();
	cpu_set_t all;
	int i, status;

	memset(&all, 0xff, sizeof(all));
	for (i = 0; i < READERS; i++)
		if (!fork()) {
			if (sched_setaffinity(0, sizeof(all), &all))
				fail("all CPUs");
			transfer(fd, 0, size, part(count / READERS), i * (SPAN / READERS));
			_exit(0);
		}
	while (wait(&status) > 0)
		if (status)
			fail("a reader");
	say(what, now() - begin);
}

static void disk(const char *device)
{
	int fd = open(device, O_RDWR | O_DIRECT);

	if (fd < 0)
		fail(device);
	one(fd, "read-1m", 0, 1 << 20, 150);
	one(fd, "read-64k", 0, 1 << 16, 700);
	one(fd, "read-4k", 0, 4096, 1500);
	one(fd, "write-64k", 1, 1 << 16, 700);
	one(fd, "write-4k", 1, 4096, 1500);
	several(fd, "eight-readers-4k", 4096, 3000);
	close(fd);
}

/* --- The network. */

static int stream_to(struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)to, sizeof(*to)))
		fail("connect");
	return fd;
}

static void send_all(int fd, const char *from, long n)
{
	long sent;

	for (; n; n -= sent, from += sent) {
		sent = write(fd, from, n);
		if (sent <= 0)
			fail("send");
	}
}

static void download(struct sockaddr_in *to, long bytes)
{
	char request[64];
	long got, all = 0;
	long long begin;
	int fd;

	snprintf(request, sizeof(request), "GET /bytes/%ld HTTP/1.0\r\n\r\n", bytes);
	begin = now();
	fd = stream_to(to);
	send_all(fd, request, strlen(request));
	while ((got = read(fd, data, 1 << 20)) > 0)
		all += got;
	if (got < 0 || all < bytes)
		fail("download");
	say("download", now() - begin);
	close(fd);
}

static void upload(struct sockaddr_in *to, long bytes)
{
	char request[96];
	long long begin;
	long n;
	int fd;

	snprintf(request, sizeof(request), "PUT /upload HTTP/1.0\r\nContent-Length: %ld\r\n\r\n", bytes);
	begin = now();
	fd = stream_to(to);
	send_all(fd, request, strlen(request));
	for (n = bytes; n > 0; n -= 1 << 16)
		send_all(fd, data, n < 1 << 16 ? n : 1 << 16);
	if (read(fd, data, 4096) <= 0)
		fail("upload");
	say("upload", now() - begin);
	close(fd);
}

/* The socket's buffer is small, so that what waits in it at the end is little of all. */
static void datagrams(struct sockaddr_in to, int port, const char *what, int size, long count)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), small = 16384;
	long long begin;
	long i;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)))
		fail("socket");
	to.sin_port = htons(port);
	begin = now();
	for (i = 0; i < part(count); i++)
		if (sendto(fd, data, size, 0, (struct sockaddr *)&to, sizeof(to)) != size)
			fail("sendto");
	say(what, now() - begin);
	close(fd);
}

static int by_size(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return x < y ? -1 : x > y;
}

static unsigned short checksum(const unsigned short *words, int n)
{
	unsigned int sum = 0;

	while (n--)
		sum += *words++;
	sum = (sum >> 16) + (sum & 0xffff);
	return ~(sum + (sum >> 16));
}

/* The median, since a single delay of the host would outweigh all others. */
static void pings(struct sockaddr_in *to, const char *what, int size, long count)
{
	static long long times[1000];
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	struct timeval limit = { .tv_sec = 2 };
	struct icmphdr *h = (struct icmphdr *)data;
	static char answer[2048];
	long i, n = part(count);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
		fail("raw socket");
	for (i = 0; i < n; i++) {
		memset(data, 0, size);
		h->type = ICMP_ECHO;
		h->un.echo.id = getpid();
		h->un.echo.sequence = i;
		h->checksum = checksum((unsigned short *)data, size / 2);
		times[i] = now();
		if (sendto(fd, data, size, 0, (struct sockaddr *)to, sizeof(*to)) != size)
			fail("ping");
		do {
			if (recv(fd, answer, sizeof(answer), 0) < 0)
				fail("no answer to a ping");
			h = (struct icmphdr *)(answer + (answer[0] & 15) * 4);
		} while (h->type != ICMP_ECHOREPLY || h->un.echo.sequence != i || h->un.echo.id != (unsigned short)getpid());
		times[i] = now() - times[i];
		h = (struct icmphdr *)data;
	}
	qsort(times, n, sizeof(times[0]), by_size);
	say(what, times[n / 2]);
	close(fd);
}

static void network(const char *host, int port, int sink)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (!inet_aton(host, &to.sin_addr))
		fail(host);
	pings(&to, "ping-64", 64, 200);
	pings(&to, "ping-1400", 1400, 200);
	download(&to, part(32 << 20));
	upload(&to, part(6 << 20));
	datagrams(to, sink, "udp-64", 64, 3000);
	datagrams(to, sink, "udp-1400", 1400, 3000);
}

int main(int argc, char **argv)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first))
		fail("CPU 0");
	data = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	percent = argc > 1 ? atoi(argv[argc - 1]) : 0;
	if (data == MAP_FAILED || percent < 1 || percent > 100)
		return 2;
	if (argc == 4 && !strcmp(argv[1], "disk"))
		disk(argv[2]);
	else if (argc == 6 && !strcmp(argv[1], "network"))
		network(argv[2], atoi(argv[3]), atoi(argv[4]));
	else
		return 2;
	return 0;
}
