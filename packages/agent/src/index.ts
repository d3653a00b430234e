export { type Agent, type AgentOptions, startAgent } from "./agent.ts";
export * from "./claim/plan.ts";
export * from "./claim/policy.ts";
export {
  AGENT_VARIABLES,
  type AgentConfig,
  type AgentVariable,
  CLAIM_POLICIES,
  ConfigError,
  type Environment,
  readAgentConfig,
} from "./config.ts";
export type * from "./executor/contract.ts";
export { createNullExecutor } from "./executor/null-executor.ts";
export { loadIdentity, type NodeIdentity } from "./identity.ts";
export { IdentityError } from "./identity-file.ts";
export { type AgentLog, type AgentLogLevel, createAgentLog, LOG_LEVELS } from "./log.ts";
export { createLoop, type Loop } from "./loop/loop.ts";
export type { LoopPorts, MembersSnapshot } from "./loop/loop-ports.ts";
export type { LoopCounts, PassOptions } from "./loop/pass.ts";
export type { Sampler } from "./sampler.ts";
