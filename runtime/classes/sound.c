// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sound cards: the parts of a card that the driver may write while it exists, and its streams while its device is restored.
 */
#include <linux/mutex.h>
#include <linux/slab.h>
#include <sound/control.h>
#include <sound/core.h>
#include <sound/pcm.h>
#include <sound/rawmidi.h>

#include "base/symbols.h"
#include "border/custom.h"
#include "classes/classes.h"
#include "recovery/class.h"
#include "rights/memory.h"

/**
 * struct card - A card that is freed together with its device.
 * @card: The card.
 * @domain: Domain of its driver.
 */
struct card {
	struct snd_card *card;
	u32 domain;
};

static void clear_pcm(u32 domain, const struct snd_pcm *pcm)
{
	const struct snd_pcm_substream *substream;
	int stream;

	for (stream = 0; stream < 2; stream++)
		for (substream = pcm->streams[stream].substream; substream; substream = substream->next)
			guardrail_revoke(domain, (unsigned long)substream, sizeof(*substream));
	guardrail_revoke(domain, (unsigned long)pcm, sizeof(*pcm));
}

static void clear_card(u32 domain, struct snd_card *card)
{
	guardrail_take(domain, (unsigned long)card->private_data, KIND_PRIVATE);
	guardrail_revoke(domain, (unsigned long)card, sizeof(*card));
}

static void clear_devices(u32 domain, struct snd_card *card)
{
	struct snd_kcontrol *control;
	struct snd_device *device;

	list_for_each_entry(device, &card->devices, list) {
		if (device->type == SNDRV_DEV_PCM)
			clear_pcm(domain, device->device_data);
		else if (device->type == SNDRV_DEV_RAWMIDI)
			guardrail_revoke(domain, (unsigned long)device->device_data, sizeof(struct snd_rawmidi));
	}
	list_for_each_entry(control, &card->controls, list)
		guardrail_revoke(domain, (unsigned long)control, sizeof(*control));
}

/*
 * Devices and controls are freed with their card, which the driver loses next. If the driver has a function for that,
 * its last call is for this.
 */
static void card_gone(void *data)
{
	struct card *known = data;
	struct snd_card *card = known->card;

	clear_devices(known->domain, card);
	if (!card->private_free)
		clear_card(known->domain, card);
	kfree(known);
}

/* The driver's function for a card that is freed has returned. */
GUARDRAIL_CUSTOM(snd_card_gone)
{
	struct snd_card *card = (struct snd_card *)object_of(action, call);

	if (card)
		clear_card(action->domain, card);
	return 0;
}

/* A card is freed with its device; the value is the size of its private memory. */
GUARDRAIL_CUSTOM(snd_card)
{
	struct snd_card *card = (struct snd_card *)object_of(action, call);
	unsigned long size = size_of(action, call);
	struct card *known;
	int err;

	if (!card)
		return 0;
	known = kmalloc(sizeof(*known), GFP_KERNEL);
	if (!known)
		return -ENOMEM;
	*known = (struct card){ .card = card, .domain = action->domain };
	err = size ? guardrail_give(action->domain, (unsigned long)card->private_data, size, KIND_PRIVATE) : 0;
	err = err ?: devm_add_action((struct device *)call->args[0], card_gone, known);
	if (err)
		kfree(known);
	return err;
}

/* The same for a card that the driver frees itself. */
GUARDRAIL_CUSTOM(snd_card_given)
{
	struct snd_card *card = (struct snd_card *)object_of(action, call);
	unsigned long size = size_of(action, call);

	return card && size ? guardrail_give(action->domain, (unsigned long)card->private_data, size, KIND_PRIVATE) : 0;
}

/* The driver frees a card, with its devices and controls. The kernel calls the driver's functions for it meanwhile. */
GUARDRAIL_CUSTOM(snd_card_leaves)
{
	struct snd_card *card = (struct snd_card *)object_of(action, call);

	if (card && guardrail_check_write(action->domain, (unsigned long)&card->private_data, sizeof(card->private_data)))
		clear_devices(action->domain, card);
	return 0;
}

/*
 * A device that is set up anew knows no stream. So streams that it knew are stopped, as where a program was too late: the
 * program, or the kernel for it, prepares the stream anew and goes on. Until the device is restored, nothing is opened,
 * closed, set up or prepared.
 */

/* The functions of the module of streams. */
struct pcm_functions {
	void (*lock)(struct snd_pcm_substream *substream);
	void (*unlock)(struct snd_pcm_substream *substream);
	int (*stop)(struct snd_pcm_substream *substream, snd_pcm_state_t state);
};

static bool find_functions(struct pcm_functions *pcm)
{
	pcm->lock = (void *)guardrail_find_symbol("snd_pcm_stream_lock_irq");
	pcm->unlock = (void *)guardrail_find_symbol("snd_pcm_stream_unlock_irq");
	pcm->stop = (void *)guardrail_find_symbol("snd_pcm_stop");
	return pcm->lock && pcm->unlock && pcm->stop;
}

/* True where the device knows the stream. */
static bool is_set_up(const struct snd_pcm_substream *substream)
{
	const struct snd_pcm_runtime *runtime = substream->runtime;

	return snd_pcm_running((struct snd_pcm_substream *)substream) || runtime->state == SNDRV_PCM_STATE_PREPARED ||
	       runtime->state == SNDRV_PCM_STATE_PAUSED;
}

static void stop_stream(struct snd_pcm_substream *substream)
{
	struct pcm_functions pcm;
	bool paused;

	/* Only those who hold the stream's locks set it up. */
	if (!is_set_up(substream) || !find_functions(&pcm))
		return;
	pcm.lock(substream);
	paused = substream->runtime->state == SNDRV_PCM_STATE_PAUSED;
	if (is_set_up(substream) && !pcm.stop(substream, SNDRV_PCM_STATE_XRUN) && paused)
		/* The kernel takes it for stopped already, but the driver must not have the device go on later. */
		substream->ops->trigger(substream, SNDRV_PCM_TRIGGER_STOP);
	pcm.unlock(substream);
}

static void quiesce_stream(struct snd_pcm_substream *substream)
{
	mutex_lock(&substream->runtime->buffer_mutex);
	stop_stream(substream);
}

static void resume_stream(struct snd_pcm_substream *substream)
{
	mutex_unlock(&substream->runtime->buffer_mutex);
}

/* With open_mutex held, streams neither come nor go. */
static void each_open_stream(const struct snd_pcm *pcm, void (*each)(struct snd_pcm_substream *substream))
{
	struct snd_pcm_substream *substream;
	int stream;

	for (stream = 0; stream < 2; stream++)
		for (substream = pcm->streams[stream].substream; substream; substream = substream->next)
			if (substream->runtime && substream->ops)
				each(substream);
}

/* The card of a device, if a child of the device is one; NULL for other children. */
static struct snd_card *card_of(struct device *child)
{
	struct snd_card *card = container_of(child, struct snd_card, card_dev);

	if (!child->class || strcmp(child->class->name, "sound") || !str_has_prefix(dev_name(child), "card"))
		return NULL;
	return card->dev == child->parent ? card : NULL;
}

/**
 * struct quiet - A PCM whose streams wait until its device is restored.
 * @list: Place among all.
 * @dev: The device.
 * @pcm: The PCM, whose open_mutex is held.
 */
struct quiet {
	struct list_head list;
	struct device *dev;
	struct snd_pcm *pcm;
};

static LIST_HEAD(quiets);
/* Protects the list. Taken in process context; nothing nests inside. */
static DEFINE_MUTEX(quiets_mutex);

static void quiesce_pcm(struct device *dev, struct snd_pcm *pcm)
{
	struct quiet *quiet = kmalloc(sizeof(*quiet), GFP_KERNEL);

	/* What was not stopped is an underrun for its program later. */
	if (!quiet)
		return;
	quiet->dev = dev;
	quiet->pcm = pcm;
	mutex_lock(&pcm->open_mutex);
	each_open_stream(pcm, quiesce_stream);
	mutex_lock(&quiets_mutex);
	list_add(&quiet->list, &quiets);
	mutex_unlock(&quiets_mutex);
}

/* While a driver has its device, its card's streams stay. */
static int quiesce_card(struct device *child, void *data)
{
	struct snd_card *card = card_of(child);
	struct snd_device *device;

	if (!card)
		return 0;
	list_for_each_entry(device, &card->devices, list)
		if (device->type == SNDRV_DEV_PCM)
			quiesce_pcm(child->parent, device->device_data);
	return 0;
}

static void quiesce(struct device *dev)
{
	device_for_each_child(dev, NULL, quiesce_card);
}

static void resume(struct device *dev)
{
	struct quiet *quiet, *next;
	LIST_HEAD(found);

	mutex_lock(&quiets_mutex);
	list_for_each_entry_safe(quiet, next, &quiets, list)
		if (quiet->dev == dev)
			list_move(&quiet->list, &found);
	mutex_unlock(&quiets_mutex);
	list_for_each_entry_safe(quiet, next, &found, list) {
		each_open_stream(quiet->pcm, resume_stream);
		mutex_unlock(&quiet->pcm->open_mutex);
		kfree(quiet);
	}
}

static struct guardrail_recovery_class sound = {
	.name = "sound cards",
	.quiesce = quiesce,
	.resume = resume,
};

void __init guardrail_sound_register(void)
{
	guardrail_recovery_register(&sound);
}
