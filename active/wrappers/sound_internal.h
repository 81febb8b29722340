/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the two sources of the wrapper for sound cards share. */
#ifndef SOUND_INTERNAL_H
#define SOUND_INTERNAL_H

#include <linux/mutex.h>

#include "active_sound.h"
#include "wrapper.h"

struct sound_role;

/* What programs may know of a control when the driver has gone. */
struct sound_control {
	unsigned int count;
	long max;
};

/**
 * enum sound_stage - Where the wrapper has brought a stream; the resting states of protocol `audio`.
 */
enum sound_stage { STREAM_CLOSED, STREAM_BARE, STREAM_CONFIGURED, STREAM_PREPARED, STREAM_RUNNING, STREAM_PAUSED, STREAM_SUSPENDED };

/**
 * struct sound_stream - A stream.
 * @sound: Its card.
 * @domain: Its domain; NULL once it has ended. @lock.
 * @lock: Held over each request. ALSA's lock of the stream may be held outside it; nothing is taken inside it but the domain's.
 * @request: The request that is on its way. @lock.
 * @params: What AUDIO_CONFIGURE is about. It must last where the driver answers too late. @lock.
 * @stage: What the driver has answered last. @lock.
 * @position: What the driver has answered to AUDIO_POINTER last, in bytes. @lock.
 * @hardware: What a runtime's hardware begins as.
 * @substream: ALSA's stream.
 * @period: Calls snd_pcm_period_elapsed(), which takes ALSA's lock of the stream and asks the domain for the pointer.
 */
struct sound_stream {
	struct sound_card *sound;
	struct active *domain;
	struct mutex lock;
	struct active_request request;
	struct snd_pcm_hw_params params;
	enum sound_stage stage;
	long position;
	const struct snd_pcm_hardware *hardware;
	struct snd_pcm_substream *substream;
	struct work_struct period;
};

/**
 * struct sound_card - A card that ALSA knows, which is the card's private data.
 * @card: ALSA's card.
 * @dev: The device, held until memory of streams has been freed.
 * @lock: Protects @role, and is held over requests for controls.
 * @role: The part in the domain of the card, NULL once that may end.
 * @controls: What is known of the controls.
 * @pcm: The PCM devices.
 * @stream_count: How many streams there are.
 * @streams: The streams.
 */
struct sound_card {
	struct snd_card *card;
	struct device *dev;
	struct mutex lock;
	struct sound_role *role;
	struct sound_control *controls;
	struct snd_pcm *pcm[ACTIVE_SOUND_DEVICES];
	unsigned int stream_count;
	struct sound_stream streams[];
};

/**
 * sound_stream_begin() - Makes a stream and its domain.
 * @sound: The card; its stream_count grows once the stream must be ended.
 * @card: What the driver says of the card.
 * @what: What it says of the stream.
 *
 * Return: 0 or an error.
 */
int sound_stream_begin(struct sound_card *sound, const struct active_card *card, const struct active_stream *what);

/**
 * sound_stream_end() - Closes a stream if it is open, and ends its domain.
 * @s: The stream. The card has been disconnected; calls of ALSA that come later find no domain.
 */
void sound_stream_end(struct sound_stream *s);

/* The error that a driver has answered with. */
static inline int sound_error(const struct active_message *m)
{
	return m && m->number < 0 && m->number >= -MAX_ERRNO ? m->number : -EIO;
}

#endif
