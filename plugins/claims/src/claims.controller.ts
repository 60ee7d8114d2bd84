import { Controller, Get, Headers, HttpCode, Inject, Post, Query } from '@nestjs/common';
import { type Caller, CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { ClaimList, ClaimsProcessed, ListClaims } from './claim.js';
import { ClaimRunner } from './claim-runner.js';
import { CronSecret } from './cron-secret.js';
import { UserClaims } from './user-claims.js';

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
