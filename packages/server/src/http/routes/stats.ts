import { ROUTES, type Stats } from "@tenure/protocol";
import type { Scope } from "../../kernel/scope.ts";
import { type Served, serve } from "../route.ts";

export function statsRoutes({ read }: { read: (scope: Scope) => Promise<Stats> }): Served[] {
  return [serve(ROUTES.readStats, ({ scope }) => read(scope))];
}
