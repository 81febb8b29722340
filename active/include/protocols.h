/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Generated from knowledge/CLASS/protocol.chart by `guardrail protocol header`, as tables; do not edit. */
#ifndef ACTIVE_PROTOCOLS_H
#define ACTIVE_PROTOCOLS_H

enum active_protocol_id {
	ACTIVE_PCI,
	ACTIVE_IRQ,
	ACTIVE_TIMER,
	ACTIVE_ETHERNET,
	ACTIVE_SATA,
	ACTIVE_AUDIO,
	ACTIVE_MIXER,
	ACTIVE_PROTOCOLS,
};

/* The driver receives the messages below 64, and sends the others. */
enum active_box {
	PCI_PROBE = 0,
	PCI_REMOVE = 1,
	PCI_UNPLUG = 2,
	PCI_SUSPEND = 3,
	PCI_RESUME = 4,
	PCI_ERROR = 5,
	PCI_MMIO_ENABLED = 6,
	PCI_SLOT_RESET = 7,
	PCI_ERROR_OVER = 8,
	PCI_SHUTDOWN = 9,
	IRQ_RAISED = 10,
	TIMER_EXPIRED = 11,
	ETHERNET_REGISTERED = 12,
	ETHERNET_REGISTER_FAILED = 13,
	ETHERNET_OPEN = 14,
	ETHERNET_STOP = 15,
	ETHERNET_XMIT = 16,
	ETHERNET_CHANGE = 17,
	ETHERNET_RX_MODE = 18,
	ETHERNET_STATISTICS = 19,
	ETHERNET_TIMEOUT = 20,
	ETHERNET_UNREGISTERED = 21,
	SATA_START = 22,
	SATA_STOP = 23,
	SATA_CLOSE = 24,
	SATA_ISSUE = 25,
	SATA_ISSUE_PACKET = 26,
	SATA_ISSUE_INTERNAL = 27,
	SATA_ISSUE_QUEUED = 28,
	SATA_FREEZE = 29,
	SATA_THAW = 30,
	SATA_SOFTRESET = 31,
	SATA_HARDRESET = 32,
	SATA_POSTRESET = 33,
	SATA_RESTART = 34,
	SATA_READ_REGISTER = 35,
	SATA_WRITE_REGISTER = 36,
	SATA_MANAGE_POWER = 37,
	SATA_SUSPEND = 38,
	SATA_RESUME = 39,
	AUDIO_OPEN = 40,
	AUDIO_CONFIGURE = 41,
	AUDIO_RELEASE = 42,
	AUDIO_PREPARE = 43,
	AUDIO_START = 44,
	AUDIO_STOP = 45,
	AUDIO_PAUSE = 46,
	AUDIO_UNPAUSE = 47,
	AUDIO_SUSPEND = 48,
	AUDIO_RESUME = 49,
	AUDIO_POINTER = 50,
	AUDIO_CLOSE = 51,
	AUDIO_DETACH = 52,
	MIXER_REGISTERED = 53,
	MIXER_REGISTER_FAILED = 54,
	MIXER_GET = 55,
	MIXER_PUT = 56,
	MIXER_UNREGISTERED = 57,
	PCI_PROBED = 64,
	PCI_PROBE_FAILED = 65,
	PCI_REMOVED = 66,
	PCI_UNPLUGGED = 67,
	PCI_SUSPENDED = 68,
	PCI_SUSPEND_FAILED = 69,
	PCI_RESUMED = 70,
	PCI_RESUME_FAILED = 71,
	PCI_ERROR_HARMLESS = 72,
	PCI_ERROR_RESET = 73,
	PCI_ERROR_FATAL = 74,
	PCI_MMIO_USABLE = 75,
	PCI_MMIO_UNUSABLE = 76,
	PCI_SLOT_READY = 77,
	PCI_SLOT_FAILED = 78,
	PCI_RECOVERED = 79,
	PCI_RECOVERY_FAILED = 80,
	PCI_SHUT_DOWN = 81,
	IRQ_ENABLE = 82,
	IRQ_DISABLE = 83,
	IRQ_SERVICED = 84,
	IRQ_UNFINISHED = 85,
	TIMER_START = 86,
	TIMER_CANCEL = 87,
	ETHERNET_REGISTER = 88,
	ETHERNET_OPENED = 89,
	ETHERNET_OPEN_FAILED = 90,
	ETHERNET_STOPPED = 91,
	ETHERNET_QUEUE_STOP = 92,
	ETHERNET_QUEUE_WAKE = 93,
	ETHERNET_TX_DONE = 94,
	ETHERNET_RX = 95,
	ETHERNET_CHANGED = 96,
	ETHERNET_COUNTED = 97,
	ETHERNET_RESTARTED = 98,
	ETHERNET_LINK_UP = 99,
	ETHERNET_LINK_DOWN = 100,
	ETHERNET_DETACH = 101,
	ETHERNET_ATTACH = 102,
	ETHERNET_UNREGISTER = 103,
	SATA_STARTED = 104,
	SATA_START_FAILED = 105,
	SATA_STOPPED = 106,
	SATA_CLOSED = 107,
	SATA_DONE = 108,
	SATA_COMPLETED = 109,
	SATA_DRAINED = 110,
	SATA_FAILED = 111,
	SATA_FATAL = 112,
	SATA_LINK_CHANGED = 113,
	SATA_FROZEN = 114,
	SATA_THAWED = 115,
	SATA_RESET_DONE = 116,
	SATA_LINK_DOWN = 117,
	SATA_RESET_FAILED = 118,
	SATA_POSTRESET_DONE = 119,
	SATA_RESTARTED = 120,
	SATA_RESTART_FAILED = 121,
	SATA_REGISTER_VALUE = 122,
	SATA_REGISTER_WRITTEN = 123,
	SATA_POWER_MANAGED = 124,
	SATA_POWER_REFUSED = 125,
	SATA_SUSPENDED = 126,
	SATA_SUSPEND_FAILED = 127,
	SATA_RESUMED = 128,
	SATA_RESUME_FAILED = 129,
	AUDIO_OPENED = 130,
	AUDIO_OPEN_FAILED = 131,
	AUDIO_CONFIGURED = 132,
	AUDIO_CONFIGURE_FAILED = 133,
	AUDIO_RELEASED = 134,
	AUDIO_PREPARED = 135,
	AUDIO_PREPARE_FAILED = 136,
	AUDIO_STARTED = 137,
	AUDIO_START_FAILED = 138,
	AUDIO_STOPPED = 139,
	AUDIO_PAUSED = 140,
	AUDIO_UNPAUSED = 141,
	AUDIO_SUSPENDED = 142,
	AUDIO_RESUMED = 143,
	AUDIO_POSITION = 144,
	AUDIO_PERIOD = 145,
	AUDIO_CLOSED = 146,
	AUDIO_DETACHED = 147,
	MIXER_REGISTER = 148,
	MIXER_GOT = 149,
	MIXER_KEPT = 150,
	MIXER_CHANGED = 151,
	MIXER_PUT_FAILED = 152,
	MIXER_UNREGISTER = 153,
	ACTIVE_BOXES_END = 154,
};

struct active_card;
struct active_ethernet_change;
struct ata_port;
struct ata_queued_cmd;
struct pci_dev;
struct sk_buff;
struct snd_ctl_elem_value;
struct snd_pcm_hw_params;
struct snd_pcm_substream;

static inline struct pci_dev *pci_probe_dev(const struct active_message *m)
{
	return m->pointer;
}

static inline void pci_probe_set_dev(struct active_message *m, struct pci_dev *dev)
{
	m->pointer = dev;
}

static inline long pci_probe_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void pci_probe_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long pci_suspend_event(const struct active_message *m)
{
	return m->number;
}

static inline void pci_suspend_set_event(struct active_message *m, long event)
{
	m->number = event;
}

static inline long pci_suspend_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void pci_suspend_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long pci_resume_event(const struct active_message *m)
{
	return m->number;
}

static inline void pci_resume_set_event(struct active_message *m, long event)
{
	m->number = event;
}

static inline long pci_resume_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void pci_resume_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long pci_error_state(const struct active_message *m)
{
	return m->number;
}

static inline void pci_error_set_state(struct active_message *m, long state)
{
	m->number = state;
}

static inline long irq_raised_bits(const struct active_message *m)
{
	return m->number;
}

static inline void irq_raised_set_bits(struct active_message *m, long bits)
{
	m->number = bits;
}

static inline long irq_serviced_work(const struct active_message *m)
{
	return m->number;
}

static inline void irq_serviced_set_work(struct active_message *m, long work)
{
	m->number = work;
}

static inline long timer_start_milliseconds(const struct active_message *m)
{
	return m->number;
}

static inline void timer_start_set_milliseconds(struct active_message *m, long milliseconds)
{
	m->number = milliseconds;
}

static inline long ethernet_register_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void ethernet_register_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long ethernet_open_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void ethernet_open_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct sk_buff *ethernet_xmit_skb(const struct active_message *m)
{
	return m->pointer;
}

static inline void ethernet_xmit_set_skb(struct active_message *m, struct sk_buff *skb)
{
	m->pointer = skb;
}

static inline struct sk_buff *ethernet_tx_done_skb(const struct active_message *m)
{
	return m->pointer;
}

static inline void ethernet_tx_done_set_skb(struct active_message *m, struct sk_buff *skb)
{
	m->pointer = skb;
}

static inline long ethernet_tx_done_error(const struct active_message *m)
{
	return m->number;
}

static inline void ethernet_tx_done_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct sk_buff *ethernet_rx_skb(const struct active_message *m)
{
	return m->pointer;
}

static inline void ethernet_rx_set_skb(struct active_message *m, struct sk_buff *skb)
{
	m->pointer = skb;
}

static inline struct active_ethernet_change *ethernet_change_change(const struct active_message *m)
{
	return m->pointer;
}

static inline void ethernet_change_set_change(struct active_message *m, struct active_ethernet_change *change)
{
	m->pointer = change;
}

static inline long ethernet_changed_error(const struct active_message *m)
{
	return m->number;
}

static inline void ethernet_changed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long ethernet_counted_missed(const struct active_message *m)
{
	return m->number;
}

static inline void ethernet_counted_set_missed(struct active_message *m, long missed)
{
	m->number = missed;
}

static inline struct ata_port *sata_start_ap(const struct active_message *m)
{
	return m->pointer;
}

static inline void sata_start_set_ap(struct active_message *m, struct ata_port *ap)
{
	m->pointer = ap;
}

static inline long sata_start_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void sata_start_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct ata_queued_cmd *sata_issue_qc(const struct active_message *m)
{
	return m->pointer;
}

static inline void sata_issue_set_qc(struct active_message *m, struct ata_queued_cmd *qc)
{
	m->pointer = qc;
}

static inline struct ata_queued_cmd *sata_issue_packet_qc(const struct active_message *m)
{
	return m->pointer;
}

static inline void sata_issue_packet_set_qc(struct active_message *m, struct ata_queued_cmd *qc)
{
	m->pointer = qc;
}

static inline struct ata_queued_cmd *sata_issue_internal_qc(const struct active_message *m)
{
	return m->pointer;
}

static inline void sata_issue_internal_set_qc(struct active_message *m, struct ata_queued_cmd *qc)
{
	m->pointer = qc;
}

static inline struct ata_queued_cmd *sata_issue_queued_qc(const struct active_message *m)
{
	return m->pointer;
}

static inline void sata_issue_queued_set_qc(struct active_message *m, struct ata_queued_cmd *qc)
{
	m->pointer = qc;
}

static inline long sata_completed_tags(const struct active_message *m)
{
	return m->number;
}

static inline void sata_completed_set_tags(struct active_message *m, long tags)
{
	m->number = tags;
}

static inline long sata_drained_tags(const struct active_message *m)
{
	return m->number;
}

static inline void sata_drained_set_tags(struct active_message *m, long tags)
{
	m->number = tags;
}

static inline long sata_failed_status(const struct active_message *m)
{
	return m->number;
}

static inline void sata_failed_set_status(struct active_message *m, long status)
{
	m->number = status;
}

static inline long sata_fatal_status(const struct active_message *m)
{
	return m->number;
}

static inline void sata_fatal_set_status(struct active_message *m, long status)
{
	m->number = status;
}

static inline long sata_link_changed_status(const struct active_message *m)
{
	return m->number;
}

static inline void sata_link_changed_set_status(struct active_message *m, long status)
{
	m->number = status;
}

static inline long sata_softreset_deadline(const struct active_message *m)
{
	return m->number;
}

static inline void sata_softreset_set_deadline(struct active_message *m, long deadline)
{
	m->number = deadline;
}

static inline long sata_hardreset_deadline(const struct active_message *m)
{
	return m->number;
}

static inline void sata_hardreset_set_deadline(struct active_message *m, long deadline)
{
	m->number = deadline;
}

static inline long sata_reset_done_signature(const struct active_message *m)
{
	return m->number;
}

static inline void sata_reset_done_set_signature(struct active_message *m, long signature)
{
	m->number = signature;
}

static inline long sata_reset_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void sata_reset_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long sata_postreset_class(const struct active_message *m)
{
	return m->number;
}

static inline void sata_postreset_set_class(struct active_message *m, long class)
{
	m->number = class;
}

static inline long sata_restart_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void sata_restart_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long sata_read_register_index(const struct active_message *m)
{
	return m->number;
}

static inline void sata_read_register_set_index(struct active_message *m, long index)
{
	m->number = index;
}

static inline long sata_register_value_value(const struct active_message *m)
{
	return m->number;
}

static inline void sata_register_value_set_value(struct active_message *m, long value)
{
	m->number = value;
}

static inline long sata_write_register_index_and_value(const struct active_message *m)
{
	return m->number;
}

static inline void sata_write_register_set_index_and_value(struct active_message *m, long index_and_value)
{
	m->number = index_and_value;
}

static inline long sata_manage_power_policy(const struct active_message *m)
{
	return m->number;
}

static inline void sata_manage_power_set_policy(struct active_message *m, long policy)
{
	m->number = policy;
}

static inline long sata_power_refused_error(const struct active_message *m)
{
	return m->number;
}

static inline void sata_power_refused_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long sata_suspend_event(const struct active_message *m)
{
	return m->number;
}

static inline void sata_suspend_set_event(struct active_message *m, long event)
{
	m->number = event;
}

static inline long sata_suspend_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void sata_suspend_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long sata_resume_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void sata_resume_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct snd_pcm_substream *audio_open_substream(const struct active_message *m)
{
	return m->pointer;
}

static inline void audio_open_set_substream(struct active_message *m, struct snd_pcm_substream *substream)
{
	m->pointer = substream;
}

static inline long audio_open_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void audio_open_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct snd_pcm_hw_params *audio_configure_params(const struct active_message *m)
{
	return m->pointer;
}

static inline void audio_configure_set_params(struct active_message *m, struct snd_pcm_hw_params *params)
{
	m->pointer = params;
}

static inline long audio_configure_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void audio_configure_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct snd_pcm_substream *audio_prepare_substream(const struct active_message *m)
{
	return m->pointer;
}

static inline void audio_prepare_set_substream(struct active_message *m, struct snd_pcm_substream *substream)
{
	m->pointer = substream;
}

static inline long audio_prepare_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void audio_prepare_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long audio_start_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void audio_start_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline long audio_position_bytes(const struct active_message *m)
{
	return m->number;
}

static inline void audio_position_set_bytes(struct active_message *m, long bytes)
{
	m->number = bytes;
}

static inline struct active_card *mixer_register_card(const struct active_message *m)
{
	return m->pointer;
}

static inline void mixer_register_set_card(struct active_message *m, struct active_card *card)
{
	m->pointer = card;
}

static inline long mixer_register_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void mixer_register_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

static inline struct snd_ctl_elem_value *mixer_get_value(const struct active_message *m)
{
	return m->pointer;
}

static inline void mixer_get_set_value(struct active_message *m, struct snd_ctl_elem_value *value)
{
	m->pointer = value;
}

static inline long mixer_get_control(const struct active_message *m)
{
	return m->number;
}

static inline void mixer_get_set_control(struct active_message *m, long control)
{
	m->number = control;
}

static inline struct snd_ctl_elem_value *mixer_put_value(const struct active_message *m)
{
	return m->pointer;
}

static inline void mixer_put_set_value(struct active_message *m, struct snd_ctl_elem_value *value)
{
	m->pointer = value;
}

static inline long mixer_put_control(const struct active_message *m)
{
	return m->number;
}

static inline void mixer_put_set_control(struct active_message *m, long control)
{
	m->number = control;
}

static inline long mixer_put_failed_error(const struct active_message *m)
{
	return m->number;
}

static inline void mixer_put_failed_set_error(struct active_message *m, long error)
{
	m->number = error;
}

#endif
