// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An active driver of the ES1370 (Ensoniq AudioPCI): two streams that play, DAC1 and DAC2, one that records, ADC, and the mixer
 * of its codec, an AK4531.
 *
 * The card is a domain with protocols pci and mixer. Each stream is a domain with protocols audio and irq, and all three run the
 * same function. One domain for all would have to remember three states, and its proof would be as large as their product.
 *
 * What they do with the device is in es1370_device.c. The driver follows the data sheets of both chips and QEMU's model.
 * MIDI and the joystick port are not driven.
 */
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "active_pci.h"
#include "es1370.h"

/* --- Streams. */

/* Each open stream has a handler of its own on the interrupt. */
static irqreturn_t es1370_interrupt(int irq, void *data)
{
	struct active *a = data;

	if (!es1370_acknowledge(a->priv))
		return IRQ_NONE;
	active_interrupt(a, 1);
	return IRQ_HANDLED;
}

/* What an open stream has, which decides what may come next. */
enum stage { CLOSED, BARE, CONFIGURED, PREPARED, RUNNING, PAUSED, SUSPENDED };

static enum stage es1370_opened(struct active *a, struct es1370_stream *s)
{
	struct snd_pcm_substream *substream = audio_open_substream(a->message);
	struct active_message answer = {};
	int error;

	error = es1370_constrain(s, substream->runtime);
	if (!error)
		error = request_irq(s->card->dev->irq, es1370_interrupt, IRQF_SHARED, "active_es1370", a);
	if (error) {
		audio_open_failed_set_error(&answer, error);
		EMIT(a, AUDIO_OPEN_FAILED, &answer);
		return CLOSED;
	}
	EMIT(a, IRQ_ENABLE);
	EMIT(a, AUDIO_OPENED);
	return BARE;
}

static enum stage es1370_closed(struct active *a, struct es1370_stream *s)
{
	EMIT(a, IRQ_DISABLE);
	free_irq(s->card->dev->irq, a);
	EMIT(a, AUDIO_CLOSED);
	return CLOSED;
}

static enum stage es1370_configured(struct active *a, struct es1370_stream *s)
{
	struct active_message answer = {};
	int error = es1370_configure(s, audio_configure_params(a->message));

	if (error) {
		audio_configure_failed_set_error(&answer, error);
		EMIT(a, AUDIO_CONFIGURE_FAILED, &answer);
		return BARE;
	}
	EMIT(a, AUDIO_CONFIGURED);
	return CONFIGURED;
}

static enum stage es1370_prepared(struct active *a, struct es1370_stream *s)
{
	s->buffer = audio_prepare_substream(a->message)->runtime->dma_addr;
	s->position = 0;
	es1370_program(s);
	EMIT(a, AUDIO_PREPARED);
	return PREPARED;
}

static void es1370_located(struct active *a, struct es1370_stream *s)
{
	struct active_message answer = {};

	audio_position_set_bytes(&answer, es1370_position(s));
	EMIT(a, AUDIO_POSITION, &answer);
}

/* What a stream receives whose buffer the device does not access. */
static enum stage es1370_still(struct active *a, struct es1370_stream *s, enum stage stage, int box)
{
	switch (box) {
	case AUDIO_CONFIGURE:
		return es1370_configured(a, s);
	case AUDIO_RELEASE:
		es1370_halt(s);
		es1370_unclaim(s);
		EMIT(a, AUDIO_RELEASED);
		return BARE;
	case AUDIO_PREPARE:
		return es1370_prepared(a, s);
	case AUDIO_START:
		es1370_run(s);
		EMIT(a, AUDIO_STARTED);
		return RUNNING;
	case AUDIO_UNPAUSE:
		es1370_run(s);
		EMIT(a, AUDIO_UNPAUSED);
		return RUNNING;
	case AUDIO_RESUME:
		es1370_program(s);
		es1370_run(s);
		EMIT(a, AUDIO_RESUMED);
		return RUNNING;
	case AUDIO_CLOSE:
		return es1370_closed(a, s);
	default:
		EMIT(a, IRQ_SERVICED);
		return stage;
	}
}

static enum stage es1370_running(struct active *a, struct es1370_stream *s)
{
	switch (AWAIT(a, AUDIO_STOP, AUDIO_PAUSE, AUDIO_SUSPEND, AUDIO_POINTER, IRQ_RAISED)) {
	case AUDIO_STOP:
		es1370_halt(s);
		EMIT(a, AUDIO_STOPPED);
		return PREPARED;
	case AUDIO_PAUSE:
		es1370_pause(s);
		EMIT(a, AUDIO_PAUSED);
		return PAUSED;
	case AUDIO_SUSPEND:
		s->position = es1370_position(s);
		es1370_halt(s);
		EMIT(a, AUDIO_SUSPENDED);
		return SUSPENDED;
	case AUDIO_POINTER:
		es1370_located(a, s);
		return RUNNING;
	default:
		EMIT(a, AUDIO_PERIOD);
		EMIT(a, IRQ_SERVICED);
		return RUNNING;
	}
}

/* Receives the next message of an open stream. Interrupts can be on their way in each stage. */
static enum stage es1370_next(struct active *a, struct es1370_stream *s, enum stage stage)
{
	int box;

	switch (stage) {
	case RUNNING:
		return es1370_running(a, s);
	case BARE:
		box = AWAIT(a, AUDIO_CONFIGURE, AUDIO_CLOSE, IRQ_RAISED);
		break;
	case CONFIGURED:
		box = AWAIT(a, AUDIO_CONFIGURE, AUDIO_RELEASE, AUDIO_PREPARE, IRQ_RAISED);
		break;
	case PREPARED:
		box = AWAIT(a, AUDIO_CONFIGURE, AUDIO_RELEASE, AUDIO_PREPARE, AUDIO_START, IRQ_RAISED);
		break;
	case PAUSED:
		box = AWAIT(a, AUDIO_RELEASE, AUDIO_PREPARE, AUDIO_UNPAUSE, IRQ_RAISED);
		break;
	default:
		box = AWAIT(a, AUDIO_RELEASE, AUDIO_PREPARE, AUDIO_RESUME, IRQ_RAISED);
		break;
	}
	return es1370_still(a, s, stage, box);
}

static void es1370_stream_main(struct active *a)
{
	struct es1370_stream *s = a->priv;
	enum stage stage = CLOSED;

	for (;;) {
		if (stage != CLOSED)
			stage = es1370_next(a, s, stage);
		else if (AWAIT(a, AUDIO_OPEN, AUDIO_DETACH) == AUDIO_OPEN)
			stage = es1370_opened(a, s);
		else
			break;
	}
	EMIT(a, AUDIO_DETACHED);
}

ACTIVE_PROGRAM(es1370_stream_main, "audio irq");

/* --- The card. */

/*
 * Without SNDRV_PCM_INFO_RESUME: the counter of a period begins anew when it is written, so periods would end elsewhere after the system has
 * slept. Programs prepare such a stream again.
 */
static const struct snd_pcm_hardware es1370_play_hardware = {
	.info = SNDRV_PCM_INFO_MMAP | SNDRV_PCM_INFO_MMAP_VALID | SNDRV_PCM_INFO_INTERLEAVED | SNDRV_PCM_INFO_BLOCK_TRANSFER |
		SNDRV_PCM_INFO_PAUSE,
	.formats = SNDRV_PCM_FMTBIT_U8 | SNDRV_PCM_FMTBIT_S16_LE,
	.rates = SNDRV_PCM_RATE_CONTINUOUS | SNDRV_PCM_RATE_8000_48000,
	.rate_min = 4000, .rate_max = 48000,
	.channels_min = 1, .channels_max = 2,
	.buffer_bytes_max = 128 * 1024, .period_bytes_min = 64, .period_bytes_max = 128 * 1024, .periods_min = 1, .periods_max = 1024,
};
static const struct snd_pcm_hardware es1370_record_hardware = {
	.info = SNDRV_PCM_INFO_MMAP | SNDRV_PCM_INFO_MMAP_VALID | SNDRV_PCM_INFO_INTERLEAVED | SNDRV_PCM_INFO_BLOCK_TRANSFER,
	.formats = SNDRV_PCM_FMTBIT_U8 | SNDRV_PCM_FMTBIT_S16_LE,
	.rates = SNDRV_PCM_RATE_CONTINUOUS | SNDRV_PCM_RATE_8000_48000,
	.rate_min = 4000, .rate_max = 48000,
	.channels_min = 1, .channels_max = 2,
	.buffer_bytes_max = 128 * 1024, .period_bytes_min = 64, .period_bytes_max = 128 * 1024, .periods_min = 1, .periods_max = 1024,
};

static const struct active_stream es1370_streams[STREAMS] = {
	{ es1370_stream_main, active_program_es1370_stream_main, "es1370-dac2", "ES1370 DAC2/ADC", 0, SNDRV_PCM_STREAM_PLAYBACK,
	  &es1370_play_hardware },
	{ es1370_stream_main, active_program_es1370_stream_main, "es1370-adc", "ES1370 DAC2/ADC", 0, SNDRV_PCM_STREAM_CAPTURE,
	  &es1370_record_hardware },
	{ es1370_stream_main, active_program_es1370_stream_main, "es1370-dac1", "ES1370 DAC1", 1, SNDRV_PCM_STREAM_PLAYBACK,
	  &es1370_play_hardware },
};
static const struct es1370_channel *const es1370_channels[STREAMS] = { &es1370_dac2, &es1370_adc, &es1370_dac1 };

static void es1370_detach(struct es1370 *card)
{
	pci_release_regions(card->dev);
	pci_disable_device(card->dev);
}

/* Fills in what the wrapper is to know. */
static void es1370_tell(struct es1370 *card)
{
	unsigned int i;

	card->card = (struct active_card){
		.owner = THIS_MODULE, .dev = &card->dev->dev, .driver = "ENS1370", .shortname = "Ensoniq AudioPCI",
		.streams = card->streams, .stream_count = STREAMS, .controls = card->shown, .control_count = ES1370_CONTROLS,
	};
	snprintf(card->card.longname, sizeof(card->card.longname), "Ensoniq AudioPCI ENS1370 at 0x%lx, irq %i", card->port, card->dev->irq);
	for (i = 0; i < STREAMS; i++) {
		card->begin[i] = (struct es1370_stream){ .card = card, .channel = es1370_channels[i] };
		card->streams[i] = es1370_streams[i];
		card->streams[i].priv = &card->begin[i];
		card->streams[i].priv_size = sizeof(card->begin[i]);
	}
	es1370_describe(card->shown);
}

static int es1370_attach(struct es1370 *card, struct pci_dev *dev)
{
	int error;

	error = pci_enable_device(dev);
	if (error)
		return error;
	error = pci_request_regions(dev, "active_es1370");
	if (error) {
		pci_disable_device(dev);
		return error;
	}
	pci_set_master(dev);
	card->dev = dev;
	card->port = pci_resource_start(dev, 0);
	es1370_defaults(card);
	es1370_tell(card);
	error = es1370_start(card);
	if (error)
		es1370_detach(card);
	return error;
}

/* --- Controls. */

static void es1370_answer_get(struct active *a, struct es1370 *card)
{
	es1370_get(card, mixer_get_control(a->message), mixer_get_value(a->message)->value.integer.value);
	EMIT(a, MIXER_GOT);
}

static void es1370_answer_put(struct active *a, struct es1370 *card)
{
	struct active_message answer = {};
	int result = es1370_put(card, mixer_put_control(a->message), mixer_put_value(a->message)->value.integer.value);

	if (result < 0) {
		mixer_put_failed_set_error(&answer, result);
		EMIT(a, MIXER_PUT_FAILED, &answer);
	} else if (result) {
		EMIT(a, MIXER_CHANGED);
	} else {
		EMIT(a, MIXER_KEPT);
	}
}

/* --- The main function of the card's domain. */

/* What the device can do: all; nothing until it is resumed; nothing until the driver leaves it. */
enum power { WORKS, SLEEPS, LOST, HALTED, GONE };

static enum power es1370_probed(struct active *a, struct es1370 *card)
{
	struct active_message m = {};
	int error;

	AWAIT(a, PCI_PROBE);
	error = es1370_attach(card, pci_probe_dev(a->message));
	if (error) {
		pci_probe_failed_set_error(&m, error);
		EMIT(a, PCI_PROBE_FAILED, &m);
		return GONE;
	}
	mixer_register_set_card(&m, &card->card);
	EMIT(a, MIXER_REGISTER, &m);
	if (AWAIT(a, MIXER_REGISTERED, MIXER_REGISTER_FAILED) == MIXER_REGISTER_FAILED) {
		pci_probe_failed_set_error(&m, mixer_register_failed_error(a->message));
		es1370_stop(card);
		es1370_detach(card);
		EMIT(a, PCI_PROBE_FAILED, &m);
		return GONE;
	}
	EMIT(a, PCI_PROBED);
	return WORKS;
}

static void es1370_unregister(struct active *a)
{
	EMIT(a, MIXER_UNREGISTER);
	AWAIT(a, MIXER_UNREGISTERED);
}

static enum power es1370_resumed(struct active *a, struct es1370 *card)
{
	struct active_message answer = {};
	int error = es1370_start(card);

	if (error) {
		pci_resume_failed_set_error(&answer, error);
		EMIT(a, PCI_RESUME_FAILED, &answer);
		return LOST;
	}
	EMIT(a, PCI_RESUMED);
	return WORKS;
}

static enum power es1370_handle(struct active *a, struct es1370 *card, enum power power, int box)
{
	switch (box) {
	case MIXER_GET:
		es1370_answer_get(a, card);
		return power;
	case MIXER_PUT:
		es1370_answer_put(a, card);
		return power;
	case PCI_SUSPEND:
		es1370_stop(card);
		EMIT(a, PCI_SUSPENDED);
		return SLEEPS;
	case PCI_RESUME:
		return es1370_resumed(a, card);
	case PCI_ERROR:
		EMIT(a, PCI_ERROR_FATAL);
		return LOST;
	case PCI_SHUTDOWN:
		pci_clear_master(card->dev);
		EMIT(a, PCI_SHUT_DOWN);
		return HALTED;
	case PCI_REMOVE:
		es1370_unregister(a);
		es1370_stop(card);
		es1370_detach(card);
		EMIT(a, PCI_REMOVED);
		return GONE;
	default:
		es1370_unregister(a);
		es1370_detach(card);
		EMIT(a, PCI_UNPLUGGED);
		return GONE;
	}
}

static void es1370_main(struct active *a)
{
	struct es1370 *card = a->priv;
	enum power power = es1370_probed(a, card);
	int box;

	while (power != GONE) {
		switch (power) {
		case WORKS:
			box = AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_SUSPEND, PCI_ERROR, PCI_SHUTDOWN, MIXER_GET, MIXER_PUT);
			break;
		case SLEEPS:
			box = AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_RESUME, PCI_SHUTDOWN);
			break;
		case LOST:
			box = AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_SHUTDOWN, MIXER_GET, MIXER_PUT);
			break;
		default:
			box = AWAIT(a, PCI_REMOVE, PCI_UNPLUG, MIXER_GET, MIXER_PUT);
			break;
		}
		power = es1370_handle(a, card, power, box);
	}
}

ACTIVE_PROGRAM(es1370_main, "pci mixer");

static const struct pci_device_id es1370_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_ENSONIQ, 0x5000) },
	{}
};
MODULE_DEVICE_TABLE(pci, es1370_ids);

static struct active_pci_driver es1370_driver = {
	.name = "active_es1370",
	.ids = es1370_ids,
	.main = es1370_main,
	.protocols = active_program_es1370_main,
	.priv_size = sizeof(struct es1370),
	.attach = active_sound_attach,
	.detach = active_sound_detach,
};
module_active_pci_driver(es1370_driver);

MODULE_DESCRIPTION("Active driver of the ES1370 sound device");
MODULE_LICENSE("GPL");
