import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { CallerAllowList } from './caller-allow-list.js';
import type { OracleRequest } from './oracle-request.js';
import { PresentedDelegations } from './presented-delegations.js';
import { OPEN_TO_UNINVITED } from './public-route.js';

/** Refuses proven callers whom the operator does not admit; runs after UcanGuard and its limits. */
@Injectable()
export class CallerGuard implements CanActivate {
  constructor(
    private readonly reflector: Reflector,
    private readonly allowList: CallerAllowList,
    private readonly presented: PresentedDelegations,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') return true;
    const { caller } = context.switchToHttp().getRequest<OracleRequest>();
    // Without a caller it is a public route: UcanGuard lets no other request pass without one.
    if (!caller) return true;
    const isOpen = this.reflector.get<boolean>(OPEN_TO_UNINVITED, context.getHandler());
    if (!isOpen) await this.allowList.assertAllowed(caller.did);
    // Nothing is stored on behalf of callers who are not admitted.
    if (caller.login && (await this.allowList.isAllowed(caller.did)))
      await this.presented.record(caller.login);
    return true;
  }
}
