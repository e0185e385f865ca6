package partitions

const coreName = "core"
