import type { Findings } from "../workload.ts";
import { createViolations, type Operation } from "./operations.ts";

export interface SendAsk {
  to: string;
  message_id: string;
  /** An older attempt than the one on record: it must have no effect. */
  old: boolean;
}

export type Send = Operation<SendAsk, unknown>;

export interface MessageStores {
  /** How often each took effect, and how often it was found to be superseded. */
  effects: Record<string, number>;
  superseded: Record<string, number>;
  /** The ids in the dead letters. */
  letters: string[];
  /** What is still in some inbox. */
  left: number;
  adopted: number;
}

/** I7: a message that was accepted takes effect, or is superseded, or is a dead letter; one that was refused is none. */
export function checkMessages(sends: readonly Send[], stores: MessageStores): Findings {
  const violations = createViolations();
  const buried = new Set(stores.letters);
  const isSomewhere = (id: string) =>
    id in stores.effects || id in stores.superseded || buried.has(id);
  for (const { asked, type } of sends) {
    const { message_id: id, old } = asked;
    if (type === "ok" && !isSomewhere(id))
      violations.add(`message ${id} was accepted and is nowhere`);
    if (type === "fail" && isSomewhere(id))
      violations.add(`message ${id} was refused and is somewhere`);
    if (old && id in stores.effects)
      violations.add(`message ${id} is of an older attempt and took effect`);
  }
  if (stores.left > 0) violations.add(`${stores.left} messages are still in an inbox`);
  const runs = Object.values(stores.effects);
  return {
    checked: sends.length,
    violations: violations.all,
    reached: {
      effects: runs.length,
      redeliveries: runs.reduce((sum, times) => sum + times - 1, 0),
      superseded: Object.keys(stores.superseded).length,
      dead_letters: buried.size,
      refused: sends.filter(({ type }) => type === "fail").length,
      adoptions: stores.adopted,
    },
  };
}
