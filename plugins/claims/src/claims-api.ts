import { createHash, timingSafeEqual } from 'node:crypto';
import { Controller, Get, Headers, HttpCode, Inject, Post, Query } from '@nestjs/common';
import { type Caller, CurrentCaller, Describe, OracleError } from '@sibyl/plugin-kit';
import { type Claim, ClaimList, ClaimsProcessed, ListClaims } from './claim.js';
import { ClaimRunner } from './claim-runner.js';
import type { ClaimStore } from './claim-store.js';
import type { UnpaidUsage } from './unpaid-usage.js';

/** The claims as the users they are about see them. */
export class UserClaims {
  constructor(
    private readonly store: ClaimStore,
    private readonly usage: UnpaidUsage,
  ) {}

  /** Usage is a claim from the moment it could not be paid, not only from the next run on. */
  async list(page: { readonly owner: string; readonly limit: number }): Promise<Claim[]> {
    await this.store.adopt(await this.usage.of(page.owner));
    return this.store.list(page);
  }
}

/** Lets in whoever knows the secret; the time it takes tells nothing about it. */
export class CronSecret {
  readonly #digest: Buffer;

  constructor(secret: string) {
    this.#digest = digestOf(`Bearer ${secret}`);
  }

  assert(authorization: string | undefined): void {
    if (timingSafeEqual(digestOf(authorization ?? ''), this.#digest)) return;
    throw new OracleError('missing_authentication', {
      message: 'Provide Authorization: Bearer <CRON_SECRET>',
    });
  }
}

/** Digests have one length, whatever was sent. */
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

@Controller('claims')
export class ClaimsController {
  constructor(
    @Inject(UserClaims) private readonly claims: UserClaims,
    @Inject(ClaimRunner) private readonly runner: ClaimRunner,
    @Inject(CronSecret) private readonly secret: CronSecret,
  ) {}

  @Get()
  @Describe({ summary: "The caller's claims, newest first", reply: ClaimList })
  async list(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ListClaims }) { limit }: ListClaims,
  ): Promise<ClaimList> {
    return { claims: await this.claims.list({ owner: did, limit }) };
  }

  @Post('process')
  @HttpCode(200)
  @Describe({
    summary: 'Bring claims forward; called by a clock, at most one at a time works',
    reply: ClaimsProcessed,
    errors: ['missing_authentication'],
    headers: { authorization: 'Bearer and the CRON_SECRET' },
  })
  process(@Headers('authorization') authorization: string | undefined): Promise<ClaimsProcessed> {
    this.secret.assert(authorization);
    return this.runner.run();
  }
}
