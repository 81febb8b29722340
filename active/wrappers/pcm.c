// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Streams of sound cards: ALSA's calls become requests of protocol `audio`.
 *
 * PCM devices are `nonatomic`: ALSA's lock of a stream is a mutex. With a spinlock there, a trigger that finds the domain busy could
 * only spin until it is idle, and the domain may sleep.
 *
 * A driver that emits AUDIO_PERIOD runs in the sender of a message, often with that lock held. So snd_pcm_period_elapsed(), which takes
 * the lock and asks for the position, is called from work.
 */
#include <linux/workqueue.h>
#include <sound/pcm_params.h>

#include "sound_internal.h"

/* Sends a request and waits. Returns the answer, or an error. */
static long sound_ask(struct sound_stream *s, unsigned int box, void *pointer)
{
	if (!s->domain || s->request.lost)
		return -ENODEV;
	return active_ask(s->domain, &s->request, box, pointer, 0);
}

/* Brings a stream from one of the stages @from to @to, or to @failed where the driver refuses. Else, nothing is to do. */
static int sound_move(struct sound_stream *s, unsigned int from, unsigned int box, enum sound_stage to, enum sound_stage failed)
{
	long result;

	if (!(from & BIT(s->stage)))
		return 0;
	result = sound_ask(s, box, s->substream);
	s->stage = result < 0 ? failed : to;
	return result;
}

#define STILL (BIT(STREAM_CONFIGURED) | BIT(STREAM_PREPARED) | BIT(STREAM_PAUSED) | BIT(STREAM_SUSPENDED))

static struct sound_stream *sound_of(struct snd_pcm_substream *substream)
{
	struct sound_card *sound = snd_pcm_substream_chip(substream);
	unsigned int i;

	for (i = 0; i < sound->stream_count; i++) {
		if (sound->streams[i].substream == substream)
			return &sound->streams[i];
	}
	return NULL;
}

static int sound_open(struct snd_pcm_substream *substream)
{
	struct sound_stream *s = sound_of(substream);
	int error = -EBUSY;

	if (!s)
		return -ENODEV;
	mutex_lock(&s->lock);
	substream->runtime->hw = *s->hardware;
	if (s->stage == STREAM_CLOSED)
		error = sound_move(s, BIT(STREAM_CLOSED), AUDIO_OPEN, STREAM_BARE, STREAM_CLOSED);
	mutex_unlock(&s->lock);
	return error;
}

/* Also for the streams that were not given up before the card went. */
static void sound_close_locked(struct sound_stream *s)
{
	sound_move(s, BIT(STREAM_RUNNING), AUDIO_STOP, STREAM_PREPARED, STREAM_PREPARED);
	sound_move(s, STILL, AUDIO_RELEASE, STREAM_BARE, STREAM_BARE);
	sound_move(s, BIT(STREAM_BARE), AUDIO_CLOSE, STREAM_CLOSED, STREAM_CLOSED);
}

static int sound_close(struct snd_pcm_substream *substream)
{
	struct sound_stream *s = sound_of(substream);

	mutex_lock(&s->lock);
	sound_close_locked(s);
	mutex_unlock(&s->lock);
	cancel_work_sync(&s->period);
	return 0;
}

static int sound_hw_params(struct snd_pcm_substream *substream, struct snd_pcm_hw_params *params)
{
	struct sound_stream *s = sound_of(substream);
	int error;

	mutex_lock(&s->lock);
	/* After a failure ALSA may free what it allocated for these parameters. */
	sound_move(s, BIT(STREAM_PAUSED) | BIT(STREAM_SUSPENDED), AUDIO_RELEASE, STREAM_BARE, STREAM_BARE);
	s->params = *params;
	error = sound_ask(s, AUDIO_CONFIGURE, &s->params);
	s->stage = error < 0 ? STREAM_BARE : STREAM_CONFIGURED;
	mutex_unlock(&s->lock);
	return error;
}

static int sound_hw_free(struct snd_pcm_substream *substream)
{
	struct sound_stream *s = sound_of(substream);

	mutex_lock(&s->lock);
	sound_move(s, STILL, AUDIO_RELEASE, STREAM_BARE, STREAM_BARE);
	mutex_unlock(&s->lock);
	return 0;
}

static int sound_prepare(struct snd_pcm_substream *substream)
{
	struct sound_stream *s = sound_of(substream);
	int error;

	mutex_lock(&s->lock);
	s->position = 0;
	error = s->stage == STREAM_BARE ? -EINVAL : sound_move(s, STILL, AUDIO_PREPARE, STREAM_PREPARED, STREAM_CONFIGURED);
	mutex_unlock(&s->lock);
	return error;
}

/* Under ALSA's lock of the stream. What ALSA stops may have stopped already, when the card went. */
static int sound_trigger(struct snd_pcm_substream *substream, int command)
{
	struct sound_stream *s = sound_of(substream);
	int error = 0;

	mutex_lock(&s->lock);
	switch (command) {
	case SNDRV_PCM_TRIGGER_START:
		error = s->stage == STREAM_PREPARED ? 0 : -EPIPE;
		if (!error)
			error = sound_move(s, BIT(STREAM_PREPARED), AUDIO_START, STREAM_RUNNING, STREAM_PREPARED);
		break;
	case SNDRV_PCM_TRIGGER_RESUME:
		error = sound_move(s, BIT(STREAM_SUSPENDED), AUDIO_RESUME, STREAM_RUNNING, STREAM_SUSPENDED);
		break;
	case SNDRV_PCM_TRIGGER_PAUSE_RELEASE:
		error = sound_move(s, BIT(STREAM_PAUSED), AUDIO_UNPAUSE, STREAM_RUNNING, STREAM_PAUSED);
		break;
	case SNDRV_PCM_TRIGGER_PAUSE_PUSH:
		error = sound_move(s, BIT(STREAM_RUNNING), AUDIO_PAUSE, STREAM_PAUSED, STREAM_RUNNING);
		break;
	case SNDRV_PCM_TRIGGER_SUSPEND:
		error = sound_move(s, BIT(STREAM_RUNNING), AUDIO_SUSPEND, STREAM_SUSPENDED, STREAM_RUNNING);
		break;
	case SNDRV_PCM_TRIGGER_STOP:
		error = sound_move(s, BIT(STREAM_RUNNING), AUDIO_STOP, STREAM_PREPARED, STREAM_PREPARED);
		break;
	default:
		error = -EINVAL;
	}
	mutex_unlock(&s->lock);
	return error;
}

/* Under ALSA's lock of the stream. */
static snd_pcm_uframes_t sound_pointer(struct snd_pcm_substream *substream)
{
	struct sound_stream *s = sound_of(substream);
	long result;

	mutex_lock(&s->lock);
	if (s->stage == STREAM_RUNNING) {
		result = sound_ask(s, AUDIO_POINTER, NULL);
		s->position = result;
	}
	result = s->position;
	mutex_unlock(&s->lock);
	return result < 0 ? SNDRV_PCM_POS_XRUN : bytes_to_frames(substream->runtime, result);
}

static int sound_sync_stop(struct snd_pcm_substream *substream)
{
	cancel_work_sync(&sound_of(substream)->period);
	return 0;
}

static const struct snd_pcm_ops sound_ops = {
	.open = sound_open,
	.close = sound_close,
	.hw_params = sound_hw_params,
	.hw_free = sound_hw_free,
	.prepare = sound_prepare,
	.trigger = sound_trigger,
	.pointer = sound_pointer,
	.sync_stop = sound_sync_stop,
};

static void period_elapsed(struct work_struct *work)
{
	snd_pcm_period_elapsed(container_of(work, struct sound_stream, period)->substream);
}

static void audio_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct sound_stream *s = data;

	switch (box) {
	case AUDIO_PERIOD:
		queue_work(system_highpri_wq, &s->period);
		break;
	case AUDIO_OPEN_FAILED:
	case AUDIO_CONFIGURE_FAILED:
	case AUDIO_PREPARE_FAILED:
	case AUDIO_START_FAILED:
		active_answer(&s->request, sound_error(m));
		break;
	case AUDIO_POSITION:
		active_answer(&s->request, m->number);
		break;
	default:
		active_answer(&s->request, 0);
	}
}

/* The driver has ended. */
static void audio_refused(struct active *a, struct active_message *m, void *data)
{
	struct sound_stream *s = data;

	active_answer(&s->request, -ENODEV);
}

static const struct active_role audio_role = {
	.protocol = ACTIVE_AUDIO,
	.emitted = audio_emitted,
	.refused = audio_refused,
};

/* The card's PCM device of a number, made by the first of its streams. */
static int device_of(struct sound_card *sound, const struct active_card *card, const struct active_stream *what, struct snd_pcm **pcm)
{
	unsigned int i, count[2] = {};
	int error;

	if (what->device >= ACTIVE_SOUND_DEVICES)
		return -EINVAL;
	if (!sound->pcm[what->device]) {
		for (i = 0; i < card->stream_count; i++) {
			if (card->streams[i].device == what->device)
				count[card->streams[i].direction]++;
		}
		error = snd_pcm_new(sound->card, what->name, what->device, count[SNDRV_PCM_STREAM_PLAYBACK],
				    count[SNDRV_PCM_STREAM_CAPTURE], &sound->pcm[what->device]);
		if (error)
			return error;
		sound->pcm[what->device]->private_data = sound;
		sound->pcm[what->device]->nonatomic = true;
		strscpy(sound->pcm[what->device]->name, what->name, sizeof(sound->pcm[what->device]->name));
	}
	*pcm = sound->pcm[what->device];
	return 0;
}

int sound_stream_begin(struct sound_card *sound, const struct active_card *card, const struct active_stream *what)
{
	struct active_domain_options options = {
		.name = what->domain,
		.main = what->main,
		.protocols = what->protocols,
		.priv_size = what->priv_size,
		.owner = card->owner,
	};
	struct sound_stream *s = &sound->streams[sound->stream_count];
	struct snd_pcm *pcm;
	int error;

	error = device_of(sound, card, what, &pcm);
	if (error)
		return error;
	s->domain = active_create(&options);
	if (IS_ERR(s->domain))
		return PTR_ERR(s->domain);
	sound->stream_count++;
	memcpy(s->domain->priv, what->priv, what->priv_size);
	s->sound = sound;
	s->hardware = what->hardware;
	s->substream = pcm->streams[what->direction].substream;
	mutex_init(&s->lock);
	active_request_init(&s->request);
	INIT_WORK(&s->period, period_elapsed);
	snd_pcm_set_ops(pcm, what->direction, &sound_ops);
	snd_pcm_set_managed_buffer(s->substream, SNDRV_DMA_TYPE_DEV, card->dev, 64 * 1024, what->hardware->buffer_bytes_max);
	active_play(s->domain, &audio_role, s);
	active_start(s->domain);
	return 0;
}

void sound_stream_end(struct sound_stream *s)
{
	mutex_lock(&s->lock);
	sound_close_locked(s);
	sound_ask(s, AUDIO_DETACH, NULL);
	/* A driver that does not end may still answer, so the stream stays too. */
	if (active_wait(s->domain))
		get_device(&s->sound->card->card_dev);
	else
		active_destroy(s->domain);
	s->domain = NULL;
	mutex_unlock(&s->lock);
	cancel_work_sync(&s->period);
}
