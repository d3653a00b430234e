import { createSeeded, type Seeded } from "@tenure/testing/seeded";

/** What the nemesis can do, and to whom. A deck has one card for everything that makes sense in a run. */
export interface Card {
  fault: string;
  /** The role it is done to: an instance, a client, a store. */
  role: string;
  /** How many there are of that role. */
  count: number;
  /** How long it lasts, from and to. 0 for what is over at once. */
  lastsMs: readonly [number, number];
  /** Ways of doing it, of which one is drawn: directions, strengths. */
  variants?: readonly string[];
  /** It concerns so many at once that nothing else is done meanwhile. */
  isAlone?: boolean;
}

export interface PlannedFault {
  atMs: number;
  fault: string;
  role: string;
  target: number;
  forMs: number;
  variant: string;
  isAlone?: boolean;
}

export interface Pace {
  /** From the beginning of one fault to the beginning of the next, from and to. */
  gapMs: readonly [number, number];
}

const PACE: Pace = { gapMs: [700, 2_500] };

/** Nominal: what was killed also has to start again before something else can be done to it. */
const RECOVERY_MS = 2_000;

export interface PlanOptions {
  seed: number;
  lengthMs: number;
  pace?: Pace | undefined;
  /** Every second fault is one of these: they bring about what has not happened yet. */
  favoured?: readonly Card[];
}

/**
 * The faults of a run: the same for the same seed, decks and length. Dealt from a shuffled deck, again and again, so
 * that a short run has every fault before any has come twice, and none is left out by chance. One thing at a time is
 * done to one target; a card that finds all its targets busy, or no room before the end, goes back under the hand.
 */
export function planFaults(
  deck: readonly Card[],
  { seed, lengthMs, pace = PACE, favoured = [] }: PlanOptions,
): PlannedFault[] {
  const random = createSeeded(seed);
  const plan: PlannedFault[] = [];
  const freeAtMs = new Map<string, number>();
  let allFreeAtMs = 0;
  const dealers = [deck, favoured]
    .filter((cards) => cards.length > 0)
    .map((cards) => createDealer(cards, random));
  for (let atMs = 0, turn = 0; dealers.length > 0; turn++) {
    atMs += Math.round(random.between(...pace.gapMs));
    if (atMs >= lengthMs) break;
    const dealer = dealers[turn % dealers.length]!;
    const card = dealer.draw();
    const free = Array.from({ length: card.count }, (_, target) => target).filter(
      (target) => Math.max(freeAtMs.get(`${card.role}-${target}`) ?? 0, allFreeAtMs) <= atMs,
    );
    const target = free[pick(random, free.length)];
    // A freeze of 13 s that is cut to 3 s is another fault, and brings about nothing.
    if (target === undefined || atMs + card.lastsMs[0] > lengthMs) {
      dealer.putBack(card);
      continue;
    }
    const variants = card.variants ?? [""];
    // What is begun late is ended in time: the plan says how long, the end of the run does not.
    const forMs = Math.min(Math.round(random.between(...card.lastsMs)), lengthMs - atMs);
    freeAtMs.set(`${card.role}-${target}`, atMs + forMs + RECOVERY_MS);
    if (card.isAlone) allFreeAtMs = atMs + forMs + RECOVERY_MS;
    plan.push({
      ...{ atMs, fault: card.fault, role: card.role, target, forMs },
      variant: variants[pick(random, variants.length)] ?? "",
      ...(card.isAlone && { isAlone: true }),
    });
  }
  return plan;
}

function createDealer(cards: readonly Card[], random: Seeded) {
  let hand: Card[] = [];
  return {
    draw(): Card {
      if (hand.length === 0) hand = shuffle(cards, random);
      return hand.pop()!;
    },
    putBack: (card: Card) => void hand.unshift(card),
  };
}

function shuffle<T>(items: readonly T[], random: Seeded): T[] {
  const mixed = [...items];
  for (let last = mixed.length - 1; last > 0; last--) {
    const other = pick(random, last + 1);
    [mixed[last], mixed[other]] = [mixed[other]!, mixed[last]!];
  }
  return mixed;
}

const pick = (random: Seeded, count: number): number => Math.floor(random.fraction() * count);

export function describeFault({ atMs, fault, role, target, forMs, variant }: PlannedFault): string {
  const at = (atMs / 1_000).toFixed(1).padStart(6);
  const lasting = forMs > 0 ? ` for ${(forMs / 1_000).toFixed(1)} s` : "";
  return `${at} s  ${fault}${variant && ` (${variant})`} of ${role} ${target}${lasting}`;
}
