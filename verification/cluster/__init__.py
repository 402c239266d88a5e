"""A petstore cluster on one machine: etcd, PostgreSQL with Patroni, HAProxy and petstore (docs/scale-out.md)."""
