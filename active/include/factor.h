/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What drivers of devices that compute factorials need besides active_pci.h. */
#ifndef ACTIVE_FACTOR_H
#define ACTIVE_FACTOR_H

#include "active_pci.h"

/* Gives a device the file `factorial`; for active_pci_driver.driver.dev_groups. */
extern const struct attribute_group *factor_groups[];
/* For active_pci_driver.attach. Context: may sleep. Return: 0 or -ENOMEM. */
int factor_attach(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver);
/* For active_pci_driver.detach. */
void factor_detach(struct active *a);

#endif
