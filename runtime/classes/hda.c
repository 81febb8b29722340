// SPDX-License-Identifier: GPL-2.0-or-later
/* Streams of HD audio: the library allocates and links them, and drivers write what lies behind the common part. */
#include <sound/hdaudio.h>

#include "base/address.h"
#include "border/custom.h"

/* The list is in the driver's memory, so a stream must name its bus. */
static bool is_stream(const struct hdac_stream *stream, const struct hdac_bus *bus)
{
	return pointer_at(&stream->bus) == bus;
}

static int each_stream(const struct guardrail_action *action, struct guardrail_call *call,
		       int (*change)(u32 domain, unsigned long p, unsigned long n))
{
	struct hdac_bus *bus = (struct hdac_bus *)object_of(action, call);
	unsigned long size = size_of(action, call);
	const struct hdac_stream *stream;
	int err = 0;

	if (!bus || size < sizeof(*stream) || !guardrail_check_write(action->domain, (unsigned long)&bus->stream_list, 16))
		return 0;
	for (stream = list_first_entry(&bus->stream_list, struct hdac_stream, list);
	     &stream->list != &bus->stream_list && is_stream(stream, bus) && !err; stream = list_next_entry(stream, list)) {
		err = change(action->domain, (unsigned long)&stream->start_wallclk, sizeof(stream->start_wallclk));
		err = err ?: change(action->domain, (unsigned long)(stream + 1), size - sizeof(*stream));
	}
	return err;
}

/* The streams of a bus exist: the pointer is the bus, the value the size of the driver's kind of stream. */
GUARDRAIL_CUSTOM(hda_streams)
{
	return each_stream(action, call, guardrail_grant);
}

GUARDRAIL_CUSTOM(hda_streams_gone)
{
	return each_stream(action, call, guardrail_revoke);
}
