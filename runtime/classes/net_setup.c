// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The settings of network devices, across a recovery. Messages of rtnetlink, which are the same in
 * all kernels, read and set the user's settings. The new device gets the number of the old one, so
 * addresses, routes and sockets that name it stay valid.
 */
#include <linux/if_addr.h>
#include <linux/inetdevice.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/neighbour.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "classes/classes.h"
#include "classes/net.h"
#include "rights/kinds.h"

/* The largest answer of the kernel, and how many are kept. */
#define ANSWER 32768
#define MAX_MESSAGES 4096
#define SAVED_FLAGS (IFF_PROMISC | IFF_ALLMULTI | IFF_NOARP | IFF_DYNAMIC)

/**
 * struct message - A message of rtnetlink that sets something again.
 * @list: Place in the list of its device.
 * @bytes: The message.
 */
struct message {
	struct list_head list;
	u8 bytes[] __aligned(NLMSG_ALIGNTO);
};

static struct nlmsghdr *header_of(struct message *message)
{
	return (struct nlmsghdr *)message->bytes;
}

/**
 * struct saved_netdev - How a network device was set up.
 * @list: Place in the list of its domain.
 * @coming: Place in coming, until it is registered anew.
 * @parent: Its parent device.
 * @port: Its port of the parent.
 * @name: Its name.
 * @net: Its namespace, which is held.
 * @ifindex: Its number.
 * @master: Number of the device that it belongs to; 0 for none.
 * @flags: IFF_… flags.
 * @mtu: MTU.
 * @queue_length: Length of the transmit queue.
 * @address: Hardware address.
 * @address_length: Its length in bytes.
 * @address_set: A user has set it.
 * @registered: It was registered anew.
 * @messages: Addresses, neighbors and routes.
 * @n_messages: How many there are.
 */
struct saved_netdev {
	struct list_head list;
	struct list_head coming;
	struct device *parent;
	unsigned short port;
	char name[IFNAMSIZ];
	possible_net_t net;
	int ifindex;
	int master;
	unsigned int flags;
	unsigned int mtu;
	unsigned int queue_length;
	u8 address[MAX_ADDR_LEN];
	u8 address_length;
	bool address_set;
	bool registered;
	struct list_head messages;
	unsigned int n_messages;
};

/* The saved devices of each domain. Only the work of its recovery changes the list and looks at it. */
static struct list_head saved_netdevs[GUARDRAIL_DOMAINS];
/* The saved devices of all domains that were not registered anew. */
static LIST_HEAD(coming);
/*
 * Protects coming, the member of that name, and what guardrail_netdev_comes() changes. Taken in process context. The
 * kernel's lock of its list of network devices nests inside.
 */
static DEFINE_MUTEX(coming_lock);

/* True where an answer is about the device. */
typedef bool (*about_fn)(const struct nlmsghdr *header, int ifindex);

static bool address_is_about(const struct nlmsghdr *header, int ifindex)
{
	const struct ifaddrmsg *message = nlmsg_data(header);

	return header->nlmsg_type == RTM_NEWADDR && nlmsg_len(header) >= sizeof(*message) && message->ifa_index == ifindex;
}

static bool route_is_about(const struct nlmsghdr *header, int ifindex)
{
	const struct rtmsg *message = nlmsg_data(header);
	const struct nlattr *attr;

	/* The kernel makes these from an address, which is saved. */
	if (header->nlmsg_type != RTM_NEWROUTE || nlmsg_len(header) < sizeof(*message) || message->rtm_protocol == RTPROT_KERNEL ||
	    message->rtm_flags & RTM_F_CLONED)
		return false;
	attr = nlmsg_find_attr(header, sizeof(*message), RTA_OIF);
	return attr && nla_len(attr) == sizeof(u32) && nla_get_u32(attr) == ifindex;
}

static bool neighbor_is_about(const struct nlmsghdr *header, int ifindex)
{
	const struct ndmsg *message = nlmsg_data(header);

	return header->nlmsg_type == RTM_NEWNEIGH && nlmsg_len(header) >= sizeof(*message) && message->ndm_ifindex == ifindex &&
	       message->ndm_state & NUD_PERMANENT;
}

/* Keeps an answer as a request to set the same. */
static void keep(struct saved_netdev *dev, const struct nlmsghdr *header)
{
	struct message *message;

	if (dev->n_messages == MAX_MESSAGES)
		return;
	message = kmalloc(struct_size(message, bytes, header->nlmsg_len), GFP_KERNEL);
	if (!message)
		return;
	memcpy(message->bytes, header, header->nlmsg_len);
	header_of(message)->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
	header_of(message)->nlmsg_pid = 0;
	list_add_tail(&message->list, &dev->messages);
	dev->n_messages++;
}

static int send(struct socket *socket, struct nlmsghdr *header)
{
	struct kvec vec = { .iov_base = header, .iov_len = header->nlmsg_len };
	/* With an address, the kernel does not look for the file of the socket, which has none. */
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct msghdr msg = { .msg_name = &kernel, .msg_namelen = sizeof(kernel) };
	int n = kernel_sendmsg(socket, &msg, &vec, 1, vec.iov_len);

	return n < 0 ? n : 0;
}

static int receive(struct socket *socket, void *answer)
{
	struct kvec vec = { .iov_base = answer, .iov_len = ANSWER };
	struct msghdr msg = { };

	return kernel_recvmsg(socket, &msg, &vec, 1, ANSWER, MSG_DONTWAIT);
}

/* Asks for all settings of one kind and family, and keeps those of the device. */
static void dump(struct socket *socket, struct saved_netdev *dev, u16 type, u8 family, size_t size, about_fn is_about)
{
	struct {
		struct nlmsghdr header;
		u8 body[sizeof(struct rtmsg)];
	} request = { };
	void *answer = kvmalloc(ANSWER, GFP_KERNEL);
	int n;

	if (!answer)
		return;
	request.header = (struct nlmsghdr){
		.nlmsg_len = NLMSG_LENGTH(size), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
	};
	request.body[0] = family;
	n = send(socket, &request.header);
	while (n >= 0 && (n = receive(socket, answer)) > 0) {
		struct nlmsghdr *header = answer;

		for (; nlmsg_ok(header, n); header = nlmsg_next(header, &n)) {
			if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR)
				goto out;
			if (is_about(header, dev->ifindex))
				keep(dev, header);
		}
	}
out:
	kvfree(answer);
}

static int request(struct socket *socket, struct nlmsghdr *header)
{
	struct nlmsghdr *answer;
	int n, err;

	err = send(socket, header);
	if (err)
		return err;
	answer = kvmalloc(ANSWER, GFP_KERNEL);
	if (!answer)
		return -ENOMEM;
	n = receive(socket, answer);
	if (n < 0)
		err = n;
	else if (n >= NLMSG_LENGTH(sizeof(struct nlmsgerr)) && answer->nlmsg_type == NLMSG_ERROR)
		err = ((struct nlmsgerr *)nlmsg_data(answer))->error;
	kvfree(answer);
	return err;
}

static struct socket *open_socket(struct net *net)
{
	struct socket *socket;

	return sock_create_kern(net, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, &socket) ? NULL : socket;
}

static void save(struct net_device *dev, struct list_head *saved)
{
	struct saved_netdev *one = kzalloc(sizeof(*one), GFP_KERNEL);
	struct net_device *master;
	struct socket *socket;

	if (!one)
		return;
	INIT_LIST_HEAD(&one->messages);
	rtnl_lock();
	one->parent = dev->dev.parent;
	one->port = dev->dev_port;
	strscpy(one->name, dev->name, sizeof(one->name));
	one->ifindex = dev->ifindex;
	one->flags = dev->flags;
	one->mtu = dev->mtu;
	one->queue_length = dev->tx_queue_len;
	one->address_set = dev->addr_assign_type == NET_ADDR_SET;
	one->address_length = dev->addr_len;
	memcpy(one->address, dev->dev_addr, dev->addr_len);
	master = netdev_master_upper_dev_get(dev);
	one->master = master ? master->ifindex : 0;
	write_pnet(&one->net, get_net(dev_net(dev)));
	rtnl_unlock();
	list_add_tail(&one->list, saved);
	mutex_lock(&coming_lock);
	list_add_tail(&one->coming, &coming);
	mutex_unlock(&coming_lock);

	socket = open_socket(read_pnet(&one->net));
	if (!socket)
		return;
	dump(socket, one, RTM_GETADDR, AF_INET, sizeof(struct ifaddrmsg), address_is_about);
	dump(socket, one, RTM_GETADDR, AF_INET6, sizeof(struct ifaddrmsg), address_is_about);
	dump(socket, one, RTM_GETNEIGH, AF_UNSPEC, sizeof(struct ndmsg), neighbor_is_about);
	dump(socket, one, RTM_GETROUTE, AF_INET, sizeof(struct rtmsg), route_is_about);
	dump(socket, one, RTM_GETROUTE, AF_INET6, sizeof(struct rtmsg), route_is_about);
	sock_release(socket);
}

static int save_held(const struct guardrail_held *held, void *saved)
{
	if (held->right == GUARDRAIL_OBJECT && held->type == GUARDRAIL_TYPE_NETDEV && held->state)
		save((struct net_device *)held->start, saved);
	return 0;
}

static void save_netdevs(u32 domain)
{
	guardrail_walk(domain, save_held, &saved_netdevs[domain]);
}

/* The device is not registered yet, so nobody else uses it. */
void guardrail_netdev_comes(struct net_device *dev)
{
	struct saved_netdev *one, *next;
	struct net_device *other;

	mutex_lock(&coming_lock);
	list_for_each_entry_safe(one, next, &coming, coming) {
		if (one->parent != dev->dev.parent || one->port != dev->dev_port || !net_eq(read_pnet(&one->net), dev_net(dev)))
			continue;
		list_del_init(&one->coming);
		one->registered = true;
		other = dev_get_by_index(dev_net(dev), one->ifindex);
		if (other)
			dev_put(other);
		else
			dev->ifindex = one->ifindex;
		other = dev_get_by_name(dev_net(dev), one->name);
		if (other)
			dev_put(other);
		else
			strscpy(dev->name, one->name, sizeof(dev->name));
		break;
	}
	mutex_unlock(&coming_lock);
}

/**
 * struct link_request - A request that sets something of a device.
 * @header: Header of the message.
 * @info: Device, and flags to change.
 * @attributes: Attributes to change.
 */
struct link_request {
	struct nlmsghdr header;
	struct ifinfomsg info;
	u8 attributes[128];
};

static void begin(struct link_request *request, const struct saved_netdev *dev, unsigned int flags, unsigned int change)
{
	memset(request, 0, sizeof(*request));
	request->header = (struct nlmsghdr){
		.nlmsg_len = NLMSG_LENGTH(sizeof(request->info)), .nlmsg_type = RTM_NEWLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
	};
	request->info = (struct ifinfomsg){ .ifi_index = dev->ifindex, .ifi_flags = flags, .ifi_change = change };
}

static void attribute(struct link_request *request, int type, const void *data, int size)
{
	struct nlattr *attr = (void *)&request->header + NLMSG_ALIGN(request->header.nlmsg_len);

	attr->nla_type = type;
	attr->nla_len = nla_attr_size(size);
	memcpy(nla_data(attr), data, size);
	request->header.nlmsg_len = NLMSG_ALIGN(request->header.nlmsg_len) + nla_total_size(size);
}

/* Sets something of a device; what cannot be set is logged. */
static unsigned int set(struct socket *socket, const struct saved_netdev *dev, struct nlmsghdr *header, const char *what)
{
	int err = request(socket, header);

	/* The kernel has set some of it by itself. */
	if (!err || err == -EEXIST)
		return 0;
	pr_warn("%s: its %s could not be set again (error %d)\n", dev->name, what, err);
	return 1;
}

static const char *name_of(u16 type)
{
	return type == RTM_NEWADDR ? "address" : type == RTM_NEWROUTE ? "route" : "neighbor";
}

/*
 * Sets what must precede the device's start, then starts the device, then sets what needs that.
 * Returns the number of settings that failed.
 */
static unsigned int restore(struct saved_netdev *saved)
{
	struct link_request request;
	struct message *message;
	struct socket *socket = open_socket(read_pnet(&saved->net));
	struct net_device *dev = dev_get_by_index(read_pnet(&saved->net), saved->ifindex);
	bool same_mtu = dev && dev->mtu == saved->mtu;
	unsigned int failed = 0;

	if (dev)
		dev_put(dev);
	if (!socket || !dev) {
		if (socket)
			sock_release(socket);
		pr_warn("%s was not registered again\n", saved->name);
		return 1;
	}
	if (saved->address_set) {
		begin(&request, saved, 0, 0);
		attribute(&request, IFLA_ADDRESS, saved->address, saved->address_length);
		failed += set(socket, saved, &request.header, "hardware address");
	}
	if (!same_mtu) {
		begin(&request, saved, 0, 0);
		attribute(&request, IFLA_MTU, &saved->mtu, sizeof(saved->mtu));
		failed += set(socket, saved, &request.header, "MTU");
	}
	begin(&request, saved, saved->flags, SAVED_FLAGS);
	attribute(&request, IFLA_TXQLEN, &saved->queue_length, sizeof(saved->queue_length));
	failed += set(socket, saved, &request.header, "flags");
	if (saved->master) {
		begin(&request, saved, 0, 0);
		attribute(&request, IFLA_MASTER, &saved->master, sizeof(saved->master));
		failed += set(socket, saved, &request.header, "master");
	}
	if (saved->flags & IFF_UP) {
		begin(&request, saved, IFF_UP, IFF_UP);
		failed += set(socket, saved, &request.header, "state");
	}
	list_for_each_entry(message, &saved->messages, list) {
		/*
		 * The flag that the link was down is not a property of a route, and would be
		 * refused.
		 */
		if (header_of(message)->nlmsg_type == RTM_NEWROUTE)
			((struct rtmsg *)nlmsg_data(header_of(message)))->rtm_flags &= RTNH_F_ONLINK;
		failed += set(socket, saved, header_of(message), name_of(header_of(message)->nlmsg_type));
	}
	sock_release(socket);
	pr_info("%s is set up again: %s, MTU %u, %u addresses, routes and neighbors\n", saved->name,
		saved->flags & IFF_UP ? "up" : "down", saved->mtu, saved->n_messages);
	return failed;
}

static unsigned int restore_netdevs(u32 domain)
{
	struct saved_netdev *one;
	unsigned int failed = 0;

	list_for_each_entry(one, &saved_netdevs[domain], list)
		failed += restore(one);
	return failed;
}

static void forget_netdevs(u32 domain)
{
	struct saved_netdev *one, *next;

	list_for_each_entry_safe(one, next, &saved_netdevs[domain], list) {
		struct message *message, *next_message;

		mutex_lock(&coming_lock);
		list_del_init(&one->coming);
		mutex_unlock(&coming_lock);
		list_for_each_entry_safe(message, next_message, &one->messages, list)
			kfree(message);
		put_net(read_pnet(&one->net));
		list_del(&one->list);
		kfree(one);
	}
}

static struct guardrail_recovery_class net_class = {
	.name = "network devices",
	.not_restored = "a network device was not registered again, or could not be set up",
	.silence = guardrail_net_silence,
	.entry_over = guardrail_net_entry_over,
	.settle = guardrail_net_settle,
	.save = save_netdevs,
	.restore = restore_netdevs,
	.forget = forget_netdevs,
	.unregister = guardrail_net_unregister,
	.end_use = guardrail_net_end_use,
	.release = guardrail_net_release,
	.free = guardrail_net_free,
};

void __init guardrail_net_register(void)
{
	u32 domain;

	for (domain = 0; domain < GUARDRAIL_DOMAINS; domain++)
		INIT_LIST_HEAD(&saved_netdevs[domain]);
	guardrail_recovery_register(&net_class);
}
