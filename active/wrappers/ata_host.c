// SPDX-License-Identifier: GPL-2.0-or-later
/* Controllers of SATA ports: makes the ports' domains, and gives them to libata. */
#include <linux/pci.h>

#include "active_pci.h"
#include "ata_host.h"

static int make_port(struct ata_domains *host, unsigned int index)
{
	const struct active_ata_options *options = host->options;
	struct ata_domain *port = &host->ports[index];
	char name[32];
	struct active_domain_options domain = {
		.name = name,
		.main = options->main,
		.protocols = options->protocols,
		.priv_size = options->port_size,
		.owner = host->dev->driver->owner,
	};
	struct active *a;

	snprintf(name, sizeof(name), "port%u@%s", index, dev_name(host->dev));
	active_ata_init(port);
	a = active_create(&domain);
	if (IS_ERR(a))
		return PTR_ERR(a);
	port->domain = a;
	port->shared = a->priv;
	port->shared->index = index;
	port->shared->controller = host->controller;
	host->controller->domains[index] = a;
	active_play(a, &active_ata_role, port);
	active_interrupt_directly(a);
	active_start(a);
	return 0;
}

/* Ends the ports' domains. Returns whether all have ended. */
static bool end_ports(struct ata_domains *host)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < host->controller->port_count; i++) {
		struct ata_domain *port = &host->ports[i];

		if (!port->domain)
			continue;
		active_ata_ask(port, SATA_CLOSE, NULL, 0);
		if (active_wait(port->domain)) {
			all = false;
			continue;
		}
		host->controller->domains[i] = NULL;
		active_destroy(port->domain);
		port->domain = NULL;
	}
	return all;
}

/* The ports are started, and stopped where one of them fails. */
static int start_host(struct ata_domains *host)
{
	const struct active_ata_options *options = host->options;
	const struct active_ata_controller *controller = host->controller;
	struct ata_port_info info = {
		.flags = controller->flags,
		.pio_mask = ATA_PIO4,
		.udma_mask = ATA_UDMA6,
		.port_ops = &active_ata_operations,
	};
	const struct ata_port_info *infos[] = { &info, NULL };
	void *others = dev_get_drvdata(host->dev);
	unsigned int i;

	host->ah = ata_host_alloc_pinfo(host->dev, infos, controller->port_count);
	dev_set_drvdata(host->dev, others);
	if (!host->ah)
		return -ENOMEM;
	host->ah->private_data = host;
	for (i = 0; i < controller->port_count; i++) {
		struct ata_port *ap = host->ah->ports[i];

		ata_port_pbar_desc(ap, options->bar, -1, "abar");
		ata_port_pbar_desc(ap, options->bar, options->port_base + i * options->port_distance, "port");
		if (!(controller->ports & BIT(i)))
			ap->ops = &ata_dummy_port_ops;
	}
	return ata_host_start(host->ah);
}

/*
 * Releases what libata took of the device: the interrupt is freed, and then the ports are stopped. libata finds its host by
 * the driver data of the device, which are the PCI wrapper's otherwise. Both are used only under the device's lock.
 */
static void release_group(struct ata_domains *host)
{
	void *others = dev_get_drvdata(host->dev);

	dev_set_drvdata(host->dev, host->ah);
	devres_release_group(host->dev, host->group);
	dev_set_drvdata(host->dev, others);
}

/* Gives the controller to libata. What it takes of the device is in a group, which is released before the ports end. */
static int register_host(struct ata_domains *host)
{
	const struct active_ata_options *options = host->options;
	const struct active_ata_controller *controller = host->controller;
	int error;

	host->group = devres_open_group(host->dev, NULL, GFP_KERNEL);
	if (!host->group)
		return -ENOMEM;
	error = start_host(host);
	if (!error)
		error = devm_request_irq(host->dev, controller->irq, options->top_half, controller->irq_flags,
					 dev_driver_string(host->dev), host->controller);
	if (!error)
		error = ata_host_register(host->ah, options->sht);
	devres_close_group(host->dev, host->group);
	if (error)
		release_group(host);
	return error;
}

/* Names the host among the device's resources; it is freed by hand. */
static void found(struct device *dev, void *resource)
{
}

int active_ata_bound(struct active *a, struct pci_dev *pdev)
{
	const struct active_pci_driver *driver =
		container_of(to_pci_driver(pdev->dev.driver), struct active_pci_driver, driver);
	struct active_ata_controller *controller = a->priv;
	unsigned int i;
	struct ata_domains *host;
	int error = 0;

	host = devres_alloc(found, struct_size(host, ports, controller->port_count), GFP_KERNEL);
	if (!host)
		return -ENOMEM;
	host->dev = &pdev->dev;
	host->options = driver->data;
	host->controller = controller;
	for (i = 0; i < controller->port_count && !error; i++)
		if (controller->ports & BIT(i))
			error = make_port(host, i);
	if (!error)
		error = register_host(host);
	if (!error)
		devres_add(&pdev->dev, host);
	else if (end_ports(host))
		devres_free(host);
	return error;
}
EXPORT_SYMBOL_GPL(active_ata_bound);

void active_ata_leaving(struct active *a, struct pci_dev *pdev)
{
	struct ata_domains *host = devres_remove(&pdev->dev, found, NULL, NULL);

	if (WARN_ON(!host))
		return;
	ata_host_detach(host->ah);
	release_group(host);
	if (end_ports(host))
		devres_free(host);
}
EXPORT_SYMBOL_GPL(active_ata_leaving);

MODULE_DESCRIPTION("SATA ports whose drivers talk by messages");
MODULE_LICENSE("GPL");
