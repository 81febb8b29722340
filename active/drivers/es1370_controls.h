/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mixer of the ES1370's codec: its controls, and which bits of which registers they are. Only es1370.c includes it. */
#ifndef ES1370_CONTROLS_H
#define ES1370_CONTROLS_H

#include "es1370.h"

/**
 * struct es1370_control - A control, and a field of a register for each of its values.
 * @shown: What programs see.
 * @inverted: Programs see the greatest value where the field is 0, as of an attenuation.
 * @reg: The registers, of the codec or NOT_CODEC: CONTROL.
 * @shift: The lowest bit of each field.
 */
struct es1370_control {
	struct active_control shown;
	bool inverted;
	u8 reg[CONTROL_VALUES];
	u8 shift[CONTROL_VALUES];
};

#define MIXER SNDRV_CTL_ELEM_IFACE_MIXER
#define MONO(name, index, max, inverted, reg, shift) { { name, index, MIXER, 1, max }, inverted, { reg }, { shift } }
#define STEREO(name, index, max, inverted, left, right, left_shift, right_shift) \
	{ { name, index, MIXER, 2, max }, inverted, { left, right }, { left_shift, right_shift } }
#define VOLUME(name, index, source) STEREO(name, index, 31, true, AK4531_##source##_L, AK4531_##source##_R, 0, 0)
#define SWITCH(name, index, source) STEREO(name, index, 1, true, AK4531_##source##_L, AK4531_##source##_R, 7, 7)
/* Whether a source is mixed into the output. */
#define MIXED(name, index, reg, left, right) STEREO(name, index, 1, false, AK4531_##reg, AK4531_##reg, left, right)
/* Whether a source is recorded in both channels. */
#define RECORDED(name, reg, shift) STEREO(name, 0, 1, false, AK4531_##reg##_L, AK4531_##reg##_R, shift, shift)
/* Which of a source's channels are recorded in which: left in left, right in left, left in right, right in right. */
#define ROUTE(name, index, reg, left, right) \
	{ { name, index, MIXER, 4, 1 }, false, { AK4531_##reg##_L, AK4531_##reg##_L, AK4531_##reg##_R, AK4531_##reg##_R }, \
	  { left, right, left, right } }
#define PIN(name, bit) { { name, 0, SNDRV_CTL_ELEM_IFACE_CARD, 1, 1 }, false, { NOT_CODEC }, { bit } }

static const struct es1370_control es1370_controls[ES1370_CONTROLS] = {
	SWITCH("Master Playback Switch", 0, MASTER),
	VOLUME("Master Playback Volume", 0, MASTER),
	MONO("Master Mono Playback Switch", 0, 1, true, AK4531_MONO_OUT, 7),
	MONO("Master Mono Playback Volume", 0, 7, true, AK4531_MONO_OUT, 0),
	SWITCH("PCM Switch", 0, VOICE),
	VOLUME("PCM Volume", 0, VOICE),
	MIXED("PCM Playback Switch", 0, OUT2, 3, 2),
	RECORDED("PCM Capture Switch", IN2, 2),
	SWITCH("PCM Switch", 1, FM),
	VOLUME("PCM Volume", 1, FM),
	MIXED("PCM Playback Switch", 1, OUT1, 6, 5),
	ROUTE("PCM Capture Route", 1, IN1, 6, 5),
	SWITCH("CD Switch", 0, CD),
	VOLUME("CD Volume", 0, CD),
	MIXED("CD Playback Switch", 0, OUT1, 2, 1),
	ROUTE("CD Capture Route", 0, IN1, 2, 1),
	SWITCH("Line Switch", 0, LINE),
	VOLUME("Line Volume", 0, LINE),
	MIXED("Line Playback Switch", 0, OUT1, 4, 3),
	ROUTE("Line Capture Route", 0, IN1, 4, 3),
	SWITCH("Aux Switch", 0, AUX),
	VOLUME("Aux Volume", 0, AUX),
	MIXED("Aux Playback Switch", 0, OUT2, 5, 4),
	ROUTE("Aux Capture Route", 0, IN2, 4, 3),
	MONO("Mono Switch", 0, 1, true, AK4531_MONO1, 7),
	MONO("Mono Volume", 0, 31, true, AK4531_MONO1, 0),
	MONO("Mono Playback Switch", 0, 1, false, AK4531_OUT2, 0),
	RECORDED("Mono Capture Switch", IN2, 0),
	MONO("Mono Switch", 1, 1, true, AK4531_MONO2, 7),
	MONO("Mono Volume", 1, 31, true, AK4531_MONO2, 0),
	MONO("Mono Playback Switch", 1, 1, false, AK4531_OUT2, 1),
	STEREO("Mono Capture Switch", 1, 1, false, AK4531_IN2_L, AK4531_IN2_R, 1, 1),
	MONO("Mic Volume", 0, 31, true, AK4531_MIC, 0),
	MONO("Mic Switch", 0, 1, true, AK4531_MIC, 7),
	MONO("Mic Playback Switch", 0, 1, false, AK4531_OUT1, 0),
	RECORDED("Mic Capture Switch", IN1, 0),
	RECORDED("Mic Bypass Capture Switch", IN2, 7),
	RECORDED("Mono1 Bypass Capture Switch", IN2, 6),
	RECORDED("Mono2 Bypass Capture Switch", IN2, 5),
	MONO("AD Input Select", 0, 1, false, AK4531_AD_INPUT, 0),
	MONO("Mic Boost (+30dB)", 0, 1, false, AK4531_MIC_GAIN, 0),
	PIN("PCM 0 Output also on Line-Out Jack", 8),
	PIN("Mic +5V bias", 30),
};

/* The outputs and what is played are audible, all other sources silent. The microphone is recorded. */
static const u8 es1370_codec_defaults[CODEC_REGISTERS] = {
	[AK4531_MASTER_L] = 0, [AK4531_MASTER_R] = 0, [AK4531_VOICE_L] = AK4531_0DB, [AK4531_VOICE_R] = AK4531_0DB,
	[AK4531_FM_L ... AK4531_MIC] = AK4531_0DB | AK4531_MUTE, [AK4531_MONO_OUT] = AK4531_MUTE, [AK4531_OUT2] = BIT(3) | BIT(2),
	[AK4531_IN1_L] = BIT(0), [AK4531_IN1_R] = BIT(0), [AK4531_RESET] = AK4531_POWER | AK4531_RUN,
};

#endif
