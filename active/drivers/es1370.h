/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Registers and data of the ES1370's driver. */
#ifndef ES1370_H
#define ES1370_H

#include <linux/bits.h>
#include <linux/spinlock.h>

#include "active_sound.h"

/* Registers, from the beginning of the device's ports. */
#define REG_CONTROL 0x00
#define REG_STATUS 0x04
#define REG_PAGE 0x0c
#define REG_CODEC 0x10
#define REG_SERIAL 0x20
#define REG_DAC1_COUNT 0x24
#define REG_DAC2_COUNT 0x28
#define REG_ADC_COUNT 0x2c
/* In the page of memory that REG_PAGE chooses: the address of a buffer, and behind it its size and the device's position. */
#define REG_DAC1_FRAME 0x30
#define REG_DAC2_FRAME 0x38
#define REG_ADC_FRAME 0x30
#define FRAME_COUNT 4
#define PAGE_DAC 0xc
#define PAGE_ADC 0xd

#define CONTROL_XCTL1 BIT(30)
#define CONTROL_PCLKDIV GENMASK(28, 16)
#define CONTROL_WTSRSEL GENMASK(13, 12)
#define CONTROL_XCTL0 BIT(8)
#define CONTROL_DAC1_EN BIT(6)
#define CONTROL_DAC2_EN BIT(5)
#define CONTROL_ADC_EN BIT(4)
#define CONTROL_CDC_EN BIT(1)
#define CONTROL_SERR_DISABLE BIT(0)

#define STATUS_CSTAT BIT(10)
#define STATUS_DAC1 BIT(2)
#define STATUS_DAC2 BIT(1)
#define STATUS_ADC BIT(0)

#define SERIAL_P2_INCREMENTS GENMASK(21, 16)
#define SERIAL_P2_END_INC BIT(19)
#define SERIAL_R1_LOOP_SEL BIT(15)
#define SERIAL_P2_LOOP_SEL BIT(14)
#define SERIAL_P1_LOOP_SEL BIT(13)
#define SERIAL_P2_PAUSE BIT(12)
#define SERIAL_P1_PAUSE BIT(11)
#define SERIAL_R1_INTR_EN BIT(10)
#define SERIAL_P2_INTR_EN BIT(9)
#define SERIAL_P1_INTR_EN BIT(8)
#define SERIAL_P1_SCT_RLD BIT(7)
#define SERIAL_P2_DAC_SEN BIT(6)
#define FORMAT_16 2
#define FORMAT_STEREO 1

/* Hz, which PCLKDIV + 2 divides. */
#define CLOCK 1411200
#define STREAMS 3

/* Registers of the codec. The first 16 attenuate a source or an output in steps of 2 dB, and silence it with the highest bit. */
#define AK4531_MASTER_L 0x00
#define AK4531_MASTER_R 0x01
#define AK4531_VOICE_L 0x02
#define AK4531_VOICE_R 0x03
#define AK4531_FM_L 0x04
#define AK4531_FM_R 0x05
#define AK4531_CD_L 0x06
#define AK4531_CD_R 0x07
#define AK4531_LINE_L 0x08
#define AK4531_LINE_R 0x09
#define AK4531_AUX_L 0x0a
#define AK4531_AUX_R 0x0b
#define AK4531_MONO1 0x0c
#define AK4531_MONO2 0x0d
#define AK4531_MIC 0x0e
#define AK4531_MONO_OUT 0x0f
#define AK4531_OUT1 0x10
#define AK4531_OUT2 0x11
#define AK4531_IN1_L 0x12
#define AK4531_IN1_R 0x13
#define AK4531_IN2_L 0x14
#define AK4531_IN2_R 0x15
#define AK4531_RESET 0x16
#define AK4531_CLOCK 0x17
#define AK4531_AD_INPUT 0x18
#define AK4531_MIC_GAIN 0x19
#define CODEC_REGISTERS 0x1a
#define AK4531_RUN BIT(0)
#define AK4531_POWER BIT(1)
#define AK4531_MUTE BIT(7)
#define CODEC_TRIES 1000
#define AK4531_0DB 6
/* In place of a register of the codec: CONTROL. */
#define NOT_CODEC 0xff
#define ES1370_CONTROLS 43
#define CONTROL_VALUES 4

/**
 * struct es1370_channel - What tells the device's three streams apart.
 * @enable: Its bit in CONTROL.
 * @interrupt: Its bit in SERIAL that enables its interrupt.
 * @status: Its bit in STATUS.
 * @pause: Its bit in SERIAL that pauses it; 0 for ADC, which cannot be paused.
 * @clear: Bits of SERIAL that are not used.
 * @format: Where its two bits of format are in SERIAL.
 * @count: The register with the frames of a period.
 * @page: The page of its buffer's registers.
 * @frame: The first of them.
 * @divided: The rate comes from the clock that DAC2 and ADC share.
 * @increment: One byte a sample, in SERIAL; only DAC2 has that.
 */
struct es1370_channel {
	u32 enable;
	u32 interrupt;
	u32 status;
	u32 pause;
	u32 clear;
	unsigned int format;
	unsigned int count;
	unsigned int page;
	unsigned int frame;
	bool divided;
	u32 increment;
};

struct es1370;

/**
 * struct es1370_stream - The private data of a stream's domain.
 * @card: The card.
 * @channel: Which of its streams.
 * @rate: The rate, as bits of CONTROL.
 * @format: FORMAT_16 and FORMAT_STEREO.
 * @buffer: The buffer's address, as the device sees it.
 * @buffer_bytes: Its size.
 * @period_frames: How many frames make a period.
 * @position: Where the stream is to go on, in bytes.
 */
struct es1370_stream {
	struct es1370 *card;
	const struct es1370_channel *channel;
	u32 rate;
	u32 format;
	u32 buffer;
	u32 buffer_bytes;
	u32 period_frames;
	long position;
};

/**
 * struct es1370 - The private data of the card's domain.
 * @dev: The device.
 * @port: Its first port.
 * @lock: Protects @control, @serial, the registers of both, REG_PAGE with what it chooses, and the clock. Nothing is taken inside it.
 * @control: What CONTROL is.
 * @serial: What SERIAL is.
 * @clock_users: The streams that have parameters, by their bit in CONTROL, of those that share the clock.
 * @clock_rate: The rate that they have, Hz.
 * @codec: What the registers of the codec are; only the card's domain uses them.
 * @card: What the wrapper knows of the card.
 * @streams: What it knows of the streams.
 * @shown: What it knows of the controls.
 * @begin: What the private data of the streams' domains begins as.
 */
struct es1370 {
	struct pci_dev *dev;
	unsigned long port;
	spinlock_t lock;
	u32 control;
	u32 serial;
	u32 clock_users;
	unsigned int clock_rate;
	u8 codec[CODEC_REGISTERS];
	struct active_card card;
	struct active_stream streams[STREAMS];
	struct active_control shown[ES1370_CONTROLS];
	struct es1370_stream begin[STREAMS];
};

extern const struct es1370_channel es1370_dac1, es1370_dac2, es1370_adc;

/* --- Streams. What does not sleep is called while an atomic message is handled. */

/* Stops a stream: the device accesses no memory for it and raises no interrupt. */
void es1370_halt(struct es1370_stream *s);
/* Starts it where it is. */
void es1370_run(struct es1370_stream *s);
/* Pauses it. */
void es1370_pause(struct es1370_stream *s);
/* Where the device is in the stream's buffer, in bytes. */
long es1370_position(struct es1370_stream *s);
/* Gives the device the stream's buffer, format and rate, and where in the buffer to go on. */
void es1370_program(struct es1370_stream *s);
/**
 * es1370_configure() - Notes a stream's parameters.
 *
 * DAC2 and ADC have one clock. The first that has parameters decides its rate, until es1370_unclaim().
 * Return: 0, or -EBUSY where the other stream has another rate; the stream then has no parameters.
 */
int es1370_configure(struct es1370_stream *s, struct snd_pcm_hw_params *params);
/* Gives up a stream's parameters. */
void es1370_unclaim(struct es1370_stream *s);
/* Limits what a program may choose to the rates that the stream can have now. Context: may sleep. Return: 0 or an error. */
int es1370_constrain(struct es1370_stream *s, struct snd_pcm_runtime *runtime);
/* Acknowledges a stream's interrupt. Context: the interrupt. Return: whether it was one. */
bool es1370_acknowledge(struct es1370_stream *s);

/* --- The card. */

/* Sets what the registers are to be at first. */
void es1370_defaults(struct es1370 *card);
/* Starts the device with all registers as they are to be. Context: may sleep. Return: 0, or -EIO where the codec stays busy. */
int es1370_start(struct es1370 *card);
/* Stops the device, whose streams are halted. Context: may sleep. */
void es1370_stop(struct es1370 *card);
/* Fills in the controls that programs see. */
void es1370_describe(struct active_control *shown);
/* Reads a control. */
void es1370_get(struct es1370 *card, long number, long *values);
/* Sets a control. Context: may sleep. Return: whether that changed anything, or an error. */
int es1370_put(struct es1370 *card, long number, const long *values);

#endif
