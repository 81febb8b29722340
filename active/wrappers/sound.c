// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The wrapper for sound cards: cards, controls, and the life of the streams' domains. Calls of ALSA become requests.
 * What is called for a stream is in pcm.c.
 *
 * Two objects, since programs can keep a card open longer than its driver lives. A sound_role lives as long as the card's domain,
 * a sound_card as long as ALSA's card. A sound_card refers to the domain until it has been unregistered.
 */
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "sound_internal.h"

/* knowledge/active/rights.txt has these numbers, and runtime/classes/active.c the size and place of a stream's. */
static_assert(offsetof(struct active_card, dev) == 8 && sizeof(struct active_card) == 144);
static_assert(offsetof(struct active_card, streams) == 112 && offsetof(struct active_card, stream_count) == 120);
static_assert(offsetof(struct active_card, controls) == 128 && offsetof(struct active_card, control_count) == 136);
static_assert(offsetof(struct active_stream, main) == 0 && sizeof(struct active_stream) == 64);
static_assert(sizeof(struct active_control) == 32);

/**
 * struct sound_role - The kernel's part in protocol `mixer` of a domain.
 * @domain: The domain of the card.
 * @card: What the driver registers.
 * @sound: The registered card, or NULL. Only @job changes it.
 * @request: The request for a control. @sound's lock serializes its use.
 * @value: What the request is about. It must last where the driver answers too late. @sound's lock.
 * @answer: Carries the answer to the driver's request.
 * @job: Registers or unregisters the card.
 * @leave: What @job does.
 */
struct sound_role {
	struct active *domain;
	const struct active_card *card;
	struct sound_card *sound;
	struct active_request request;
	struct snd_ctl_elem_value value;
	struct active_message answer;
	struct work_struct job;
	bool leave;
};

static int control_info(struct snd_kcontrol *kcontrol, struct snd_ctl_elem_info *info)
{
	const struct sound_control *control = &((struct sound_card *)kcontrol->private_data)->controls[kcontrol->private_value];

	info->type = control->max == 1 ? SNDRV_CTL_ELEM_TYPE_BOOLEAN : SNDRV_CTL_ELEM_TYPE_INTEGER;
	info->count = control->count;
	info->value.integer.min = 0;
	info->value.integer.max = control->max;
	return 0;
}

static int control_ask(struct snd_kcontrol *kcontrol, unsigned int box, struct snd_ctl_elem_value *value)
{
	struct sound_card *sound = kcontrol->private_data;
	struct sound_role *role;
	int result = -ENODEV;

	mutex_lock(&sound->lock);
	role = sound->role;
	if (role && !role->request.lost) {
		role->value = *value;
		result = active_ask(role->domain, &role->request, box, &role->value, kcontrol->private_value);
		*value = role->value;
	}
	mutex_unlock(&sound->lock);
	return result;
}

static int control_get(struct snd_kcontrol *kcontrol, struct snd_ctl_elem_value *value)
{
	return control_ask(kcontrol, MIXER_GET, value);
}

static int control_put(struct snd_kcontrol *kcontrol, struct snd_ctl_elem_value *value)
{
	return control_ask(kcontrol, MIXER_PUT, value);
}

static int add_controls(struct sound_card *sound, const struct active_card *card)
{
	struct snd_kcontrol_new control = { .info = control_info, .get = control_get, .put = control_put };
	unsigned int i;
	int error;

	sound->controls = kcalloc(card->control_count, sizeof(*sound->controls), GFP_KERNEL);
	if (!sound->controls)
		return -ENOMEM;
	for (i = 0; i < card->control_count; i++) {
		sound->controls[i] = (struct sound_control){ card->controls[i].count, card->controls[i].max };
		control.iface = card->controls[i].iface;
		control.name = card->controls[i].name;
		control.index = card->controls[i].index;
		control.private_value = i;
		error = snd_ctl_add(sound->card, snd_ctl_new1(&control, sound));
		if (error)
			return error;
	}
	return 0;
}

/* The card's last program has closed it, or it was never registered. */
static void sound_free(struct snd_card *card)
{
	struct sound_card *sound = card->private_data;

	kfree(sound->controls);
	put_device(sound->dev);
}

/* Takes the card from programs, and ends the streams' domains. Programs may still have it open. */
static void sound_leave(struct sound_card *sound)
{
	unsigned int i;

	snd_card_disconnect(sound->card);
	for (i = 0; i < sound->stream_count; i++)
		sound_stream_end(&sound->streams[i]);
	mutex_lock(&sound->lock);
	sound->role = NULL;
	mutex_unlock(&sound->lock);
	snd_card_free_when_closed(sound->card);
}

static int sound_fill(struct sound_card *sound, const struct active_card *card)
{
	unsigned int i;
	int error;

	strscpy(sound->card->driver, card->driver, sizeof(sound->card->driver));
	strscpy(sound->card->shortname, card->shortname, sizeof(sound->card->shortname));
	strscpy(sound->card->longname, card->longname, sizeof(sound->card->longname));
	for (i = 0; i < card->stream_count; i++) {
		error = sound_stream_begin(sound, card, &card->streams[i]);
		if (error)
			return error;
	}
	error = add_controls(sound, card);
	return error ?: snd_card_register(sound->card);
}

static int sound_register(struct sound_role *role)
{
	const struct active_card *card = role->card;
	struct sound_card *sound;
	struct snd_card *new;
	int error;

	error = snd_card_new(card->dev, -1, NULL, card->owner, struct_size(sound, streams, card->stream_count), &new);
	if (error)
		return error;
	sound = new->private_data;
	sound->card = new;
	sound->dev = get_device(card->dev);
	new->private_free = sound_free;
	mutex_init(&sound->lock);
	sound->role = role;
	error = sound_fill(sound, card);
	if (error)
		sound_leave(sound);
	else
		role->sound = sound;
	return error;
}

static void role_job(struct work_struct *work)
{
	struct sound_role *role = container_of(work, struct sound_role, job);
	int error;

	role->answer.pointer = NULL;
	if (role->leave) {
		sound_leave(role->sound);
		role->sound = NULL;
		role->answer.box = MIXER_UNREGISTERED;
	} else {
		error = sound_register(role);
		role->answer.box = error ? MIXER_REGISTER_FAILED : MIXER_REGISTERED;
		role->answer.number = error;
	}
	active_send(role->domain, &role->answer);
}

static void mixer_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct sound_role *role = data;

	switch (box) {
	case MIXER_REGISTER:
		role->card = m->pointer;
		role->leave = false;
		active_accept(a, ACTIVE_BOXES(MIXER_GET, MIXER_PUT));
		queue_work(system_long_wq, &role->job);
		break;
	case MIXER_UNREGISTER:
		role->leave = true;
		active_refuse(a, ACTIVE_BOXES(MIXER_GET, MIXER_PUT));
		queue_work(system_long_wq, &role->job);
		break;
	case MIXER_PUT_FAILED:
		active_answer(&role->request, sound_error(m));
		break;
	default:
		active_answer(&role->request, box == MIXER_CHANGED);
	}
}

static void mixer_refused(struct active *a, struct active_message *m, void *data)
{
	struct sound_role *role = data;

	active_answer(&role->request, -ENODEV);
}

static const struct active_role mixer_role = {
	.protocol = ACTIVE_MIXER,
	.emitted = mixer_emitted,
	.refused = mixer_refused,
};

int active_sound_attach(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver)
{
	struct sound_role *role = kzalloc(sizeof(*role), GFP_KERNEL);

	if (!role)
		return -ENOMEM;
	role->domain = a;
	active_request_init(&role->request);
	INIT_WORK(&role->job, role_job);
	active_play(a, &mixer_role, role);
	return 0;
}
EXPORT_SYMBOL_GPL(active_sound_attach);

/* The driver has returned, so the card is not registered, unless it broke its protocol. */
void active_sound_detach(struct active *a)
{
	struct sound_role *role = active_data(a, ACTIVE_MIXER);

	cancel_work_sync(&role->job);
	if (role->sound)
		sound_leave(role->sound);
	kfree(role);
}
EXPORT_SYMBOL_GPL(active_sound_detach);

MODULE_DESCRIPTION("Sound cards of active drivers");
MODULE_LICENSE("GPL");
