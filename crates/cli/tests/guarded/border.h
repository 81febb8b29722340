/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does what a driver does with objects of the kernel, and where WRONG is 1 one thing besides in each function, which changes nothing
 * in the kernel, or nothing that matters.
 */
#include <linux/buffer_head.h>
#include <linux/etherdevice.h>
#include <linux/fs_struct.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#ifndef WRONG
#error "WRONG is 0 or 1"
#endif

#define LATER (3600 * HZ)

struct session {
	struct timer_list timer;
	struct delayed_work work;
	u32 state;
};

static struct kmem_cache *cache;
static struct net_device *dev;
static int numbers[2];
static DEFINE_MUTEX(lock);

static void border_expire(struct timer_list *timer)
{
}

static void border_work(struct work_struct *work)
{
}

static irqreturn_t border_irq(int irq, void *data)
{
	return IRQ_NONE;
}

/* Fields of a device that drivers fill in, and one that is the kernel's. */
static noinline void border_netdev(void)
{
	WRITE_ONCE(dev->watchdog_timeo, 5 * HZ);
	WRITE_ONCE(*(u8 *)netdev_priv(dev), 1);
	if (WRONG)
		WRITE_ONCE(dev->ifindex, READ_ONCE(dev->ifindex));
}

/* The kernel writes for the driver; the device has no number yet, which is 0. */
static noinline void border_parse(void)
{
	if (kstrtoint("0", 10, WRONG ? &dev->ifindex : &numbers[0]))
		WRITE_ONCE(numbers[1], 1);
}

/* What is behind a driver's private memory is none of its. */
static noinline void border_behind(void)
{
	u8 *priv = netdev_priv(dev);

	WRITE_ONCE(priv[39], 0);
	if (WRONG)
		WRITE_ONCE(priv[40], READ_ONCE(priv[40]));
}

/* A frame's fields and data, and a field that only the kernel changes. */
static noinline void border_skb(void)
{
	struct sk_buff *skb = netdev_alloc_skb(dev, 256);

	if (!skb)
		return;
	memset(skb_put(skb, 200), 1, 200);
	skb->protocol = htons(ETH_P_IP);
	if (WRONG)
		WRITE_ONCE(skb->head, READ_ONCE(skb->head));
	dev_kfree_skb(skb);
}

/* A frame that was given away. */
static noinline void border_given(void)
{
	struct sk_buff *skb = netdev_alloc_skb(dev, 256);

	if (!skb)
		return;
	dev_kfree_skb(skb);
	if (WRONG)
		WRITE_ONCE(*(u32 *)skb->cb, 0);
}

/* A timer is the kernel's, but for its time. */
static noinline void border_timer(struct session *s)
{
	timer_setup(&s->timer, border_expire, 0);
	s->timer.expires = jiffies + LATER;
	add_timer(&s->timer);
	if (WRONG)
		WRITE_ONCE(s->timer.function, READ_ONCE(s->timer.function));
	timer_delete_sync(&s->timer);
}

/* Work is the kernel's while it is queued. */
static noinline void border_queued(struct session *s)
{
	INIT_DELAYED_WORK(&s->work, border_work);
	schedule_delayed_work(&s->work, LATER);
	if (WRONG)
		WRITE_ONCE(s->work.work.func, READ_ONCE(s->work.work.func));
	cancel_delayed_work_sync(&s->work);
}

/* Memory in which a timer is armed is not freed; one whose memory has gone is deleted here, since this is only a test. */
static noinline void border_armed(struct session *s)
{
	mod_timer(&s->timer, jiffies + LATER);
	if (!WRONG)
		timer_delete_sync(&s->timer);
	kmem_cache_free(cache, s);
	if (WRONG)
		timer_delete_sync(&s->timer);
	/* The call is not the function's last deed, so that it is in the trace. */
	WRITE_ONCE(numbers[1], 1);
}

/* What is called must be code. There is no such interrupt. */
static noinline void border_handler(void)
{
	irq_handler_t handler = WRONG ? (irq_handler_t)(void *)numbers : border_irq;

	OPTIMIZER_HIDE_VAR(handler);
	if (!request_irq(1 << 30, handler, 0, "border", numbers))
		free_irq(1 << 30, numbers);
}

/* What is handed to the kernel as a dentry or a buffer is one. Here nothing is made of it. */
static noinline void border_dentry(void)
{
	static struct dentry fake;
	struct dentry *dentry = WRONG ? &fake : current->fs->pwd.dentry;

	WRITE_ONCE(numbers[1], is_subdir(dentry, dentry));
}

static noinline void border_buffer(void)
{
	static struct buffer_head bh;

	bh.b_bdev = (void *)numbers;
	bh.b_data = (void *)numbers;
	bh.b_size = sizeof(numbers);
	atomic_set(&bh.b_count, WRONG ? 0 : 1);
	unlock_buffer(&bh);
	WRITE_ONCE(numbers[1], 1);
}

/* A lock is given back before the driver returns to the kernel. */
static noinline void border_lock(void)
{
	mutex_lock(&lock);
	WRITE_ONCE(numbers[1], 1);
	if (!WRONG)
		mutex_unlock(&lock);
}

static int __init border_init(void)
{
	struct session *s;

	dev = alloc_etherdev(40);
	cache = kmem_cache_create("border", sizeof(struct session), 0, SLAB_TYPESAFE_BY_RCU, NULL);
	s = cache ? kmem_cache_alloc(cache, GFP_KERNEL) : NULL;
	if (!dev || !s)
		return -ENOMEM;
	border_netdev();
	border_parse();
	border_behind();
	border_skb();
	border_given();
	border_timer(s);
	border_queued(s);
	border_armed(s);
	border_handler();
	border_dentry();
	border_buffer();
	border_lock();
	return 0;
}

static void __exit border_exit(void)
{
	if (WRONG)
		mutex_unlock(&lock);
	kmem_cache_destroy(cache);
	free_netdev(dev);
}

module_init(border_init);
module_exit(border_exit);
MODULE_DESCRIPTION("guardrail: what calls do to rights");
MODULE_LICENSE("GPL");
