// SPDX-License-Identifier: GPL-2.0-or-later
/* Sound cards: the parts of a card that the driver may write while it exists. */
#include <linux/slab.h>
#include <sound/control.h>
#include <sound/core.h>
#include <sound/pcm.h>
#include <sound/rawmidi.h>

#include "border/custom.h"
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
