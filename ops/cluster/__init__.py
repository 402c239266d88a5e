"""A real petstore cluster on one machine: etcd, PostgreSQL under Patroni, HAProxy and petstore (docs/scale-out.md)."""
