const gathering: (() => void)[] = [];
const sending: (() => void)[] = [];
let isPlanned = false;

/**
 * Puts something off to the end of this turn of the event loop: first everybody who gathers, then everybody who sends.
 *
 * What was gathered goes out through somebody who gathers, too. With a `setImmediate` each, the second would always be
 * a turn later than the first: a round of the loop, a write and a wake-up more, for nothing.
 */
export function atEndOfTurn(stage: "gather" | "send", act: () => void): void {
  (stage === "gather" ? gathering : sending).push(act);
  plan();
}

function plan(): void {
  if (isPlanned) return;
  isPlanned = true;
  setImmediate(endTurn);
}

/** Who is called may put off more, which belongs to this turn, too. One that throws does not keep the others from theirs. */
function endTurn(): void {
  try {
    for (let act = next(); act; act = next()) act();
  } finally {
    isPlanned = false;
    if (gathering.length + sending.length > 0) plan();
  }
}

const next = (): (() => void) | undefined => gathering.shift() ?? sending.shift();
