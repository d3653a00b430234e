/** The faults of the short run: few enough that each is drawn, and together they can reach every hazard. */
export const SHORT_RUN_FAULTS: readonly string[] = [
  ...["instance.kill", "instance.freeze:6000", "instance.postgres-cut", "storm"],
  ...["postgres.crash", "redis.crash", "fence.freeze:4000", "fence.postgres-partition:6000"],
  ...["members.kill:6000", "claims.hosts-partition:14000", "reader.kill", "reader.freeze:4000"],
  ...["unit.kill:5000", "worker.kill", "worker.hosts-partition:13000", "turn-worker.kill"],
];
