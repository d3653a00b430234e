export * from "./claim/plan.ts";
export * from "./claim/policy.ts";
