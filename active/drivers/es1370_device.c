// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The device of the ES1370's driver: its registers, those of its codec, and what may be in them. Nothing here sends or receives a message.
 *
 * The domains of the card and of its streams share three registers, which the card's lock protects. It is held for a few accesses, and
 * nothing is taken inside it.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/pci.h>
#include <sound/pcm_params.h>

#include "es1370.h"
#include "es1370_controls.h"

static inline u32 es1370_read(struct es1370 *card, unsigned int reg)
{
	return inl(card->port + reg);
}

static inline void es1370_write(struct es1370 *card, unsigned int reg, u32 value)
{
	outl(value, card->port + reg);
}

static const unsigned int dac1_rates[] = { 5512, 11025, 22050, 44100 };
static const struct snd_pcm_hw_constraint_list dac1_constraint = { .count = ARRAY_SIZE(dac1_rates), .list = dac1_rates };
/* DAC2 and ADC divide one clock by PCLKDIV + 2. */
static const struct snd_ratnum divided_clock = { .num = CLOCK, .den_min = 29, .den_max = 353, .den_step = 1 };
static const struct snd_pcm_hw_constraint_ratnums divided_constraint = { .nrats = 1, .rats = &divided_clock };

const struct es1370_channel es1370_dac1 = {
	.enable = CONTROL_DAC1_EN, .interrupt = SERIAL_P1_INTR_EN, .status = STATUS_DAC1, .pause = SERIAL_P1_PAUSE,
	.clear = SERIAL_P1_LOOP_SEL | SERIAL_P1_SCT_RLD, .format = 0, .count = REG_DAC1_COUNT, .page = PAGE_DAC, .frame = REG_DAC1_FRAME,
};
const struct es1370_channel es1370_dac2 = {
	.enable = CONTROL_DAC2_EN, .interrupt = SERIAL_P2_INTR_EN, .status = STATUS_DAC2, .pause = SERIAL_P2_PAUSE,
	.clear = SERIAL_P2_LOOP_SEL | SERIAL_P2_DAC_SEN | SERIAL_P2_INCREMENTS, .format = 2, .count = REG_DAC2_COUNT, .page = PAGE_DAC,
	.frame = REG_DAC2_FRAME, .divided = true, .increment = SERIAL_P2_END_INC,
};
const struct es1370_channel es1370_adc = {
	.enable = CONTROL_ADC_EN, .interrupt = SERIAL_R1_INTR_EN, .status = STATUS_ADC, .clear = SERIAL_R1_LOOP_SEL, .format = 4,
	.count = REG_ADC_COUNT, .page = PAGE_ADC, .frame = REG_ADC_FRAME, .divided = true,
};

/* Sets and clears bits of the control and the serial register. The card's lock is held. */
static void es1370_change(struct es1370 *card, u32 control_clear, u32 control_set, u32 serial_clear, u32 serial_set)
{
	card->control = (card->control & ~control_clear) | control_set;
	card->serial = (card->serial & ~serial_clear) | serial_set;
	es1370_write(card, REG_SERIAL, card->serial);
	es1370_write(card, REG_CONTROL, card->control);
}

/* Stops a stream: the device accesses no memory for it and raises no interrupt. */
void es1370_halt(struct es1370_stream *s)
{
	const struct es1370_channel *c = s->channel;
	unsigned long flags;

	spin_lock_irqsave(&s->card->lock, flags);
	es1370_change(s->card, c->enable, 0, c->interrupt | c->pause, 0);
	spin_unlock_irqrestore(&s->card->lock, flags);
}

void es1370_run(struct es1370_stream *s)
{
	const struct es1370_channel *c = s->channel;
	unsigned long flags;

	spin_lock_irqsave(&s->card->lock, flags);
	es1370_change(s->card, 0, c->enable, c->pause, c->interrupt);
	spin_unlock_irqrestore(&s->card->lock, flags);
}

void es1370_pause(struct es1370_stream *s)
{
	unsigned long flags;

	spin_lock_irqsave(&s->card->lock, flags);
	es1370_change(s->card, 0, 0, 0, s->channel->pause);
	spin_unlock_irqrestore(&s->card->lock, flags);
}

/* Where the device is in the stream's buffer, in bytes. */
long es1370_position(struct es1370_stream *s)
{
	unsigned long flags;
	u32 frame;

	spin_lock_irqsave(&s->card->lock, flags);
	es1370_write(s->card, REG_PAGE, s->channel->page);
	frame = es1370_read(s->card, s->channel->frame + FRAME_COUNT);
	spin_unlock_irqrestore(&s->card->lock, flags);
	return frame >> 16 << 2;
}

/* Gives the device the stream's buffer, format and rate, and where in the buffer to go on. */
void es1370_program(struct es1370_stream *s)
{
	const struct es1370_channel *c = s->channel;
	u32 rate = c->divided ? CONTROL_PCLKDIV : CONTROL_WTSRSEL;
	unsigned long flags;

	spin_lock_irqsave(&s->card->lock, flags);
	es1370_change(s->card, c->enable | rate, s->rate, c->interrupt | c->pause | c->clear | 3 << c->format,
		      s->format << c->format | (s->format & FORMAT_16 ? 2 : 1) * c->increment);
	es1370_write(s->card, REG_PAGE, c->page);
	es1370_write(s->card, c->frame, s->buffer);
	es1370_write(s->card, c->frame + FRAME_COUNT, s->position >> 2 << 16 | ((s->buffer_bytes >> 2) - 1));
	es1370_write(s->card, c->count, s->period_frames - 1);
	spin_unlock_irqrestore(&s->card->lock, flags);
}

/* DAC2 and ADC have one rate, which the first that has parameters chooses. */
static int es1370_claim(struct es1370_stream *s, unsigned int rate)
{
	struct es1370 *card = s->card;
	unsigned long flags;
	int error = 0;

	if (!s->channel->divided)
		return 0;
	spin_lock_irqsave(&card->lock, flags);
	if (card->clock_users & ~s->channel->enable && card->clock_rate != rate)
		error = -EBUSY;
	else
		card->clock_rate = rate;
	card->clock_users = error ? card->clock_users & ~s->channel->enable : card->clock_users | s->channel->enable;
	spin_unlock_irqrestore(&card->lock, flags);
	return error;
}

void es1370_unclaim(struct es1370_stream *s)
{
	unsigned long flags;

	spin_lock_irqsave(&s->card->lock, flags);
	s->card->clock_users &= ~s->channel->enable;
	spin_unlock_irqrestore(&s->card->lock, flags);
}

int es1370_configure(struct es1370_stream *s, struct snd_pcm_hw_params *params)
{
	unsigned int i, rate = params_rate(params);
	int error = es1370_claim(s, rate);

	if (error)
		return error;
	s->rate = ((CLOCK + rate / 2) / rate - 2) << 16;
	if (!s->channel->divided) {
		for (i = 0; i < ARRAY_SIZE(dac1_rates) - 1 && dac1_rates[i] < rate; i++)
			;
		s->rate = i << 12;
	}
	s->format = (params_format(params) == SNDRV_PCM_FORMAT_U8 ? 0 : FORMAT_16) | (params_channels(params) == 2 ? FORMAT_STEREO : 0);
	s->buffer_bytes = params_buffer_bytes(params);
	s->period_frames = params_period_size(params);
	return 0;
}

/* Tells ALSA what rates there are. Where the other stream on the clock has a rate, it is the only one. */
int es1370_constrain(struct es1370_stream *s, struct snd_pcm_runtime *runtime)
{
	unsigned int rate = 0;
	unsigned long flags;
	int error;

	if (!s->channel->divided)
		return snd_pcm_hw_constraint_list(runtime, 0, SNDRV_PCM_HW_PARAM_RATE, &dac1_constraint);
	spin_lock_irqsave(&s->card->lock, flags);
	if (s->card->clock_users)
		rate = s->card->clock_rate;
	spin_unlock_irqrestore(&s->card->lock, flags);
	error = snd_pcm_hw_constraint_ratnums(runtime, 0, SNDRV_PCM_HW_PARAM_RATE, &divided_constraint);
	if (error >= 0 && rate)
		error = snd_pcm_hw_constraint_single(runtime, SNDRV_PCM_HW_PARAM_RATE, rate);
	return error < 0 ? error : 0;
}

/* Writes a register of the codec, once the write before it has been passed on. Sleeps. */
static int es1370_codec_write(struct es1370 *card, unsigned int reg, u8 value)
{
	unsigned int i;

	for (i = 0; i < CODEC_TRIES; i++) {
		if (!(es1370_read(card, REG_STATUS) & STATUS_CSTAT)) {
			outw(reg << 8 | value, card->port + REG_CODEC);
			card->codec[reg] = value;
			return 0;
		}
		usleep_range(10, 50);
	}
	dev_err(&card->dev->dev, "the codec stays busy\n");
	return -EIO;
}

/* Ends the codec's reset, and sets all its registers. */
static int es1370_codec_start(struct es1370 *card)
{
	unsigned int i;
	int error = es1370_codec_write(card, AK4531_RESET, AK4531_POWER | AK4531_RUN);

	usleep_range(100, 200);
	for (i = 0; i < CODEC_REGISTERS; i++) {
		if (error)
			return error;
		error = es1370_codec_write(card, i, card->codec[i]);
	}
	return error;
}

/* Starts the device with the streams halted. The registers keep what they were before the system slept. */
int es1370_start(struct es1370 *card)
{
	spin_lock_irq(&card->lock);
	es1370_change(card, 0, 0, 0, 0);
	spin_unlock_irq(&card->lock);
	return es1370_codec_start(card);
}

/* Stops the device, whose streams are halted. */
void es1370_stop(struct es1370 *card)
{
	es1370_codec_write(card, AK4531_RESET, 0);
	card->codec[AK4531_RESET] = AK4531_POWER | AK4531_RUN;
	spin_lock_irq(&card->lock);
	es1370_write(card, REG_SERIAL, 0);
	es1370_write(card, REG_CONTROL, CONTROL_SERR_DISABLE);
	spin_unlock_irq(&card->lock);
}

static u32 es1370_register(struct es1370 *card, unsigned int reg)
{
	return reg == NOT_CODEC ? card->control : card->codec[reg];
}

/* Sets a field of a register. Returns 1 if that changed it, 0, or an error. */
static int es1370_set(struct es1370 *card, const struct es1370_control *control, unsigned int i, long shown)
{
	u32 mask = (u32)control->shown.max << control->shift[i], old = es1370_register(card, control->reg[i]), new;
	int error = 0;

	if (control->inverted)
		shown = control->shown.max - shown;
	new = (old & ~mask) | (u32)shown << control->shift[i];
	if (new == old)
		return 0;
	if (control->reg[i] != NOT_CODEC) {
		error = es1370_codec_write(card, control->reg[i], new);
	} else {
		spin_lock_irq(&card->lock);
		es1370_change(card, mask, new & mask, 0, 0);
		spin_unlock_irq(&card->lock);
	}
	return error ?: 1;
}

void es1370_get(struct es1370 *card, long number, long *values)
{
	const struct es1370_control *control = &es1370_controls[number];
	unsigned int i;
	long shown;

	for (i = 0; i < CONTROL_VALUES && i < control->shown.count; i++) {
		shown = es1370_register(card, control->reg[i]) >> control->shift[i] & control->shown.max;
		values[i] = control->inverted ? control->shown.max - shown : shown;
	}
}

int es1370_put(struct es1370 *card, long number, const long *values)
{
	const struct es1370_control *control = &es1370_controls[number];
	int result, changed = 0;
	unsigned int i;

	for (i = 0; i < CONTROL_VALUES && i < control->shown.count; i++) {
		if (values[i] < 0 || values[i] > control->shown.max)
			return -EINVAL;
	}
	for (i = 0; i < CONTROL_VALUES && i < control->shown.count; i++) {
		result = es1370_set(card, control, i, values[i]);
		if (result < 0)
			return result;
		changed |= result;
	}
	return changed;
}

bool es1370_acknowledge(struct es1370_stream *s)
{
	struct es1370 *card = s->card;
	u32 enabled;

	if (!(es1370_read(card, REG_STATUS) & s->channel->status))
		return false;
	spin_lock(&card->lock);
	enabled = card->serial & s->channel->interrupt;
	es1370_write(card, REG_SERIAL, card->serial & ~enabled);
	es1370_write(card, REG_SERIAL, card->serial);
	spin_unlock(&card->lock);
	return enabled;
}

void es1370_describe(struct active_control *shown)
{
	unsigned int i;

	for (i = 0; i < ES1370_CONTROLS; i++)
		shown[i] = es1370_controls[i].shown;
}

void es1370_defaults(struct es1370 *card)
{
	spin_lock_init(&card->lock);
	card->control = CONTROL_CDC_EN | CONTROL_SERR_DISABLE;
	memcpy(card->codec, es1370_codec_defaults, sizeof(card->codec));
}
