/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an active driver of a sound card includes. The wrapper is a low-level driver of ALSA, and turns its calls into messages:
 * of protocol `mixer` to the domain of the card, and of protocol `audio` to a domain for each stream.
 */
#ifndef ACTIVE_SOUND_H
#define ACTIVE_SOUND_H

#include <linux/device.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <sound/control.h>
#include <sound/core.h>
#include <sound/pcm.h>

#include "active.h"

/**
 * struct active_control - A control of a card's mixer.
 * @name: Its name, as programs know it.
 * @index: Tells controls of one name apart.
 * @iface: SNDRV_CTL_ELEM_IFACE_MIXER or SNDRV_CTL_ELEM_IFACE_CARD.
 * @count: How many values it has.
 * @max: The greatest value; the least is 0. A control with 1 is a switch.
 */
struct active_control {
	const char *name;
	unsigned int index;
	snd_ctl_elem_iface_t iface;
	unsigned int count;
	long max;
};

/**
 * struct active_stream - A stream of a card, which is a domain of its own.
 * @main: The domain's main function.
 * @protocols: Its protocols, active_program_MAIN: audio, and irq where it has interrupts of its own.
 * @domain: The domain's name.
 * @name: The name of the stream's PCM device; streams of one device have the same.
 * @device: The number of the PCM device, below ACTIVE_SOUND_DEVICES.
 * @direction: SNDRV_PCM_STREAM_PLAYBACK or SNDRV_PCM_STREAM_CAPTURE. A device has at most one stream of each.
 * @hardware: What a runtime's hardware is set to before the driver receives AUDIO_OPEN.
 * @priv: What the domain's private data begins as; it is copied.
 * @priv_size: How many bytes.
 */
struct active_stream {
	void (*main)(struct active *a);
	const char *protocols;
	const char *domain;
	const char *name;
	unsigned int device;
	int direction;
	const struct snd_pcm_hardware *hardware;
	const void *priv;
	size_t priv_size;
};

#define ACTIVE_SOUND_DEVICES 4

/**
 * struct active_card - What a driver says of its card with MIXER_REGISTER. It stays the driver's, and unchanged until MIXER_UNREGISTERED.
 * @owner: The driver's module.
 * @dev: The device that the card and the memory of its streams belong to.
 * @driver: The driver's name for programs, at most 15 characters.
 * @shortname: The card's short name, at most 31 characters.
 * @longname: The card's long name, at most 79 characters.
 * @streams: Its streams.
 * @stream_count: How many.
 * @controls: Its controls; the number of MIXER_GET and MIXER_PUT is a control's index here.
 * @control_count: How many.
 */
struct active_card {
	struct module *owner;
	struct device *dev;
	const char *driver;
	const char *shortname;
	char longname[80];
	const struct active_stream *streams;
	unsigned int stream_count;
	const struct active_control *controls;
	unsigned int control_count;
};

struct active_pci_driver;

/* For struct active_pci_driver's @attach and @detach. */
int active_sound_attach(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver);
void active_sound_detach(struct active *a);

#endif
